// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Command pod is all that the node's own image holds. Without arguments it holds the sandbox of a pod open; the rest is
// for tests of the node.
//
//	pod                      waits until it is told to end, and takes care of orphans
//	pod serve ADDRESS        answers HTTP with its host name
//	pod get URL              prints what an HTTP server answers, and fails when there is no answer for five seconds
package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pod:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 0:
		hold()
		return nil
	case len(args) == 2 && args[0] == "serve":
		return serve(args[1])
	case len(args) == 2 && args[0] == "get":
		return get(args[1])
	}
	return errors.New("usage: pod [serve ADDRESS | get URL]")
}

// hold waits for the end. Where the containers of a pod share their processes this is pid 1 of them, and reaps.
func hold() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}

func serve(address string) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	server := &http.Server{Addr: address, ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, name)
	})}
	return server.ListenAndServe()
}

// get asks until there is an answer: the address of a pod takes a moment to reach the rules that let it through.
func get(url string) error {
	client := &http.Client{Timeout: time.Second}
	var err error
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		var response *http.Response
		if response, err = client.Get(url); err == nil {
			defer response.Body.Close() //nolint:errcheck // it was only read
			_, err = io.Copy(os.Stdout, response.Body)
			return err
		}
	}
	return err
}
