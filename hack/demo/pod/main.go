// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// Command pod is the program of the demo's image: an MCP server with invoices, and an agent that calls it.
//
//	demo serve ADDRESS           serves MCP over streamable HTTP, at /mcp
//	demo stdio                   serves MCP over standard input and output
//	demo wait                    does nothing until it is told to end: a pod for an agent
//	demo call TOOL ARGUMENTS     calls a tool, and prints what the answer says
//	demo calls                   reads calls from standard input, a JSON object a line, and answers each with a line
//	demo book FILE ADDRESS       keeps the book of several servers: what they post is appended to the file
//	demo executions FILE         prints what a server has executed, a JSON object a line
//	demo get URL                 prints the status that an HTTP server answers with
//	demo end                     ends the first process of the container, as a crash would
//
// Servers write what they execute to the file that EXECUTIONS names, or post it to the book at that URL. Over HTTP they refuse
// whoever does not show CREDENTIAL in the header Authorization, if it is set. Agents call the server at MCP_URL,
// with the token in the file that TOKEN_FILE names.
package main

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/tidewaiter/tidewaiter/hack/demo/billing"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	verb := ""
	if len(args) > 0 {
		verb = args[0]
	}
	switch {
	case verb == "serve" && len(args) == 2:
		return serve(ctx, args[1])
	case verb == "stdio" && len(args) == 1:
		server, err := newServer()
		if err != nil {
			return err
		}
		return server.Listen(ctx, stdin, stdout)
	case verb == "wait" && len(args) == 1:
		<-ctx.Done()
		return nil
	case verb == "call" && len(args) == 3:
		return callOnce(ctx, stdout, args[1], args[2])
	case verb == "calls" && len(args) == 1:
		return callAll(ctx, stdin, stdout)
	case verb == "book" && len(args) == 3:
		return keepBook(ctx, args[1], args[2])
	case verb == "executions" && len(args) == 2:
		return printFile(stdout, args[1])
	case verb == "get" && len(args) == 2:
		return get(ctx, stdout, args[1])
	case verb == "end" && len(args) == 1:
		return syscall.Kill(1, syscall.SIGTERM)
	}
	return errors.New("usage: demo serve ADDRESS | stdio | wait | call TOOL ARGUMENTS | calls | book FILE ADDRESS | executions FILE | get URL | end")
}

// newServer is the billing server, which writes down what it executes where it is told to.
func newServer() (*billing.Server, error) {
	server := billing.New()
	switch to := os.Getenv("EXECUTIONS"); {
	case strings.HasPrefix(to, "http://"):
		server.Executed = func(tool string, arguments map[string]any) error { return post(to, execution{tool, arguments}) }
	case to != "":
		book, err := openBook(to)
		if err != nil {
			return nil, err
		}
		server.Executed = func(tool string, arguments map[string]any) error { return book.write(execution{tool, arguments}) }
	}
	return server, nil
}

// serve answers until it is told to end, and lets the calls under way come to their end.
func serve(ctx context.Context, address string) error {
	billing, err := newServer()
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", asking(os.Getenv("CREDENTIAL"), billing.Handler()))
	return listen(ctx, address, mux)
}

func listen(ctx context.Context, address string, handler http.Handler) error {
	server := &http.Server{Addr: address, Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve at %s: %w", address, err)
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := server.Shutdown(last); err != nil { // a stream that a client listens on does not end by itself
		return server.Close()
	}
	return nil
}

// asking lets through whoever shows the credential; everybody where there is none.
func asking(credential string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if credential != "" && subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte(credential)) == 0 {
			http.Error(w, "the credential is needed", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// get asks once, for at most three seconds.
func get(ctx context.Context, stdout io.Writer, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, response.Status)
	return response.Body.Close()
}
