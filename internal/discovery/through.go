// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/tidewaiter/tidewaiter/internal/glyph"
	"github.com/tidewaiter/tidewaiter/internal/netguard"
)

const (
	// maxReport is how long a gateway's report may be, in bytes: a whole listing and what stands around it.
	maxReport = maxListing + 4<<20
	// maxCause is how much is kept of what a gateway says went wrong, in bytes.
	maxCause = 256
	// maxGaps is how many gaps of a report are kept.
	maxGaps = 16
)

// Report is what the gateway in a server's pod tells the operator, who does not reach the server: a listing, or why there
// is none.
type Report struct {
	Server    Info              `json:"server"`
	Announces bool              `json:"announces"`
	Tools     []json.RawMessage `json:"tools"`
	Gaps      []string          `json:"gaps,omitempty"`
	Error     *Error            `json:"error,omitempty"`
}

// ReportOf puts the end of a listing into a report.
func ReportOf(result Result, err error) Report {
	if fault, ok := errors.AsType[*Error](err); ok {
		return Report{Error: fault}
	} else if err != nil {
		return Report{Error: unreachable("the server cannot be listed")}
	}
	r := Report{Server: result.Server, Announces: result.Announces, Gaps: result.Gaps, Tools: []json.RawMessage{}}
	for _, d := range result.Tools {
		r.Tools = append(r.Tools, d.Raw)
	}
	return r
}

// Through lists the tools of a server by the report of a gateway; the target is where that gives it. The gateway runs in
// the server's pod, so its report is read as the answer of a server is. Errors are of type *Error.
func Through(ctx context.Context, target Target) (Result, error) {
	resp, err := ask(ctx, target)
	if err != nil {
		return Result{}, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxReport+1))
	if err != nil {
		return Result{}, unreachable("the gateway in the pod breaks its report off")
	}
	var report Report
	if len(raw) > maxReport || json.Unmarshal(raw, &report) != nil {
		return Result{}, protocolError("the gateway in the pod gives no report that can be read")
	}
	if fault := report.Error; fault != nil {
		switch fault.Kind {
		case Unreachable, Unauthorized, AddressForbidden, ProtocolError:
		default:
			fault.Kind = Unreachable
		}
		return Result{}, &Error{Kind: fault.Kind, Cause: clip(fault.Cause, maxCause)}
	}
	var found collection
	found.add(report.Tools)
	result := found.result(report.Server.clipped(), report.Announces)
	for _, gap := range report.Gaps[:min(len(report.Gaps), maxGaps)] {
		result.Gaps = append(result.Gaps, clip(gap, maxCause))
	}
	return result, nil
}

// clipped bounds what somebody else says of a server.
func (i Info) clipped() Info {
	return Info{
		Name: clip(i.Name, maxInfo), Version: clip(i.Version, maxInfo), ProtocolVersion: clip(i.ProtocolVersion, maxInfo),
		Instructions: glyph.Cut(i.Instructions, maxInstructions), InstructionsDigest: clip(i.InstructionsDigest, 71),
	}
}

// WatchThrough is Watch by a gateway: every line that it sends says that the list of tools has changed.
func WatchThrough(ctx context.Context, target Target, changed func()) error {
	resp, err := ask(ctx, target)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	if resp.StatusCode == http.StatusNoContent {
		return ErrNoStream
	}
	lines := bufio.NewReaderSize(resp.Body, 64)
	for {
		if _, err := lines.ReadSlice('\n'); err != nil {
			return unreachable("the gateway in the pod ends its stream of changes")
		}
		changed()
	}
}

// ask sends a gateway one question.
func ask(ctx context.Context, target Target) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.URL, nil)
	if err != nil {
		return nil, unreachable("the gateway's address is no URL")
	}
	req.Header = target.Headers.Clone()
	resp, err := netguard.Plain((&http.Client{Transport: target.Transport, CheckRedirect: netguard.NoRedirect}).Do(req))
	if err != nil {
		if ctx.Err() != nil {
			return nil, unreachable("the gateway in the pod does not answer in time")
		}
		if fault := dialError(err); fault != nil {
			return nil, &Error{Kind: fault.Kind, Cause: "of the gateway in the pod: " + fault.Cause}
		}
		return nil, unreachable("the gateway in the pod cannot be asked")
	}
	switch resp.StatusCode {
	case http.StatusOK, http.StatusNoContent:
		return resp, nil
	case http.StatusServiceUnavailable:
		err = unreachable("the gateway in the pod is not ready to be asked: its log says why")
	case http.StatusUnauthorized, http.StatusForbidden:
		err = &Error{Kind: Unauthorized, Cause: "the gateway in the pod refuses the operator's token"}
	default:
		err = unreachable(fmt.Sprintf("the gateway in the pod answers with HTTP status %d", resp.StatusCode))
	}
	_ = resp.Body.Close() // what it says besides is not read
	return nil, err
}
