// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"

	"github.com/tidewaiter/tidewaiter/internal/netguard"
)

// Kind says who can mend an Error.
type Kind string

const (
	// Unreachable means that nobody answered, or not as a working server does.
	Unreachable Kind = "Unreachable"
	// Unauthorized means that the server refused the credentials.
	Unauthorized Kind = "Unauthorized"
	// AddressForbidden means that the address may not be dialled.
	AddressForbidden Kind = "AddressForbidden"
	// ProtocolError means that what answered does not speak MCP as it should.
	ProtocolError Kind = "ProtocolError"
)

// Error says why a server's tools could not be listed. The same fault has the same words: they hold no address, port,
// identifier or time, and nothing that the server chose.
type Error struct {
	// Kind says who can mend it.
	Kind Kind `json:"kind"`
	// Cause is a phrase for people.
	Cause string `json:"cause"`
	// status is the HTTP status behind the error, if any.
	status int
}

// Error returns the cause.
func (e *Error) Error() string { return e.Cause }

func unreachable(cause string) *Error { return &Error{Kind: Unreachable, Cause: cause} }

func protocolError(format string, args ...any) *Error {
	return &Error{Kind: ProtocolError, Cause: fmt.Sprintf(format, args...)}
}

// statusError turns an HTTP status into an Error, nil for success.
func statusError(status int) *Error {
	switch {
	case status >= 200 && status < 300:
		return nil
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return &Error{Kind: Unauthorized, Cause: fmt.Sprintf("the server refuses the credentials with HTTP status %d", status), status: status}
	case status == http.StatusNotFound:
		return &Error{Kind: Unreachable, Cause: "the server answers with HTTP status 404: is the path of the endpoint right?", status: status}
	case status >= 300 && status < 400:
		return &Error{Kind: Unreachable, Cause: fmt.Sprintf("the server answers with HTTP status %d, a redirect, which is not followed", status), status: status}
	default:
		return &Error{Kind: Unreachable, Cause: fmt.Sprintf("the server answers with HTTP status %d", status), status: status}
	}
}

// dialError turns what the network or TLS said into an Error. It returns nil where the exchange was given up on this side,
// which is no fault of the server and has a reason of its own.
func dialError(err error) *Error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	if forbidden, ok := errors.AsType[*netguard.ForbiddenError](err); ok {
		return &Error{Kind: AddressForbidden, Cause: "the server's address is refused: " + forbidden.Error() + " unless --allow-address lists it"}
	}
	if errors.Is(err, netguard.ErrSwitches) {
		return protocolError("the server switches to another protocol, which nobody asked for")
	}
	if errors.Is(err, netguard.ErrStatus) {
		return protocolError("the server's answer has a status that HTTP does not know")
	}
	if cause := tlsCause(err); cause != "" {
		return unreachable(cause)
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok && !dns.IsTimeout {
		return unreachable("the server's name does not resolve")
	}
	if netErr, ok := errors.AsType[net.Error](err); ok && netErr.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return unreachable("the server does not answer in time")
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return unreachable("the connection is refused")
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return unreachable("there is no route to the server")
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return unreachable("the server breaks the connection off")
	default:
		return unreachable("the connection fails")
	}
}

// tlsCause names a fault of TLS, "" for any other error.
func tlsCause(err error) string {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "TLS: the server's certificate is of an unknown authority"
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "TLS: the server's certificate is for another name"
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		if invalid.Reason == x509.Expired {
			return "TLS: the server's certificate has expired or is not valid yet"
		}
		return "TLS: the server's certificate is not valid"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "TLS: the server's certificate is not trusted"
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return "TLS: the server does not speak TLS"
	}
	if _, ok := errors.AsType[tls.AlertError](err); ok {
		return "TLS: the server ends the handshake"
	}
	return ""
}
