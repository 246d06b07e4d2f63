// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	// foreign is the code of an answer that belongs to another call.
	foreign = "foreign answer"
	// noStream is the code of a message that was not sent, since there was no stream for its answer.
	noStream = "no stream"
)

// exchange sends a message about a call and reads its answer.
func (a *agent) exchange(ctx context.Context, t told, gateway, body string) (answer answer, code, task string) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	url := gateway + "/" + namespace + "/" + t.Site + "/mcp"
	status, text, code := 0, []byte(nil), ""
	if t.Site == annex {
		status, text, code = a.exchangeSSE(ctx, t, gateway, url, body)
	} else {
		status, text, code = a.post(ctx, t, url, body)
	}
	switch code {
	case "":
	case noStream:
		return refused, code, ""
	default:
		return nothing, code, ""
	}
	answer, code, task = understand(status, text)
	if answer == executed && !bytes.Contains(text, []byte(" "+t.Key+`"`)) {
		return nothing, foreign, ""
	}
	return answer, code, task
}

func (a *agent) request(ctx context.Context, t told, method, url, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+a.token)
	req.Header.Set("Accept", "text/event-stream")
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set("Traceparent", "00-"+t.Trace+"-"+t.Trace[:16]+"-01")
	}
	return a.http.Do(req)
}

// post sends a message and reads all that is answered. code says what is wrong, "" for nothing.
func (a *agent) post(ctx context.Context, t told, url, body string) (status int, text []byte, code string) {
	resp, err := a.request(ctx, t, http.MethodPost, url, body)
	if err != nil {
		return 0, nil, "no answer"
	}
	defer resp.Body.Close()
	if text, err = io.ReadAll(resp.Body); err != nil {
		return 0, nil, "broken answer"
	}
	return resp.StatusCode, text, ""
}

// exchangeSSE opens a stream, sends one message and reads its answer there. A call of the kind cancel is taken back.
func (a *agent) exchangeSSE(ctx context.Context, t told, gateway, url, body string) (status int, text []byte, code string) {
	stream, err := a.request(ctx, t, http.MethodGet, url, "")
	if err != nil {
		return 0, nil, noStream
	}
	defer stream.Body.Close()
	lines := bufio.NewReader(stream.Body)
	event, err := next(lines)
	target, isEndpoint := bytes.CutPrefix(event, []byte("/"))
	if err != nil || stream.StatusCode != http.StatusOK || !isEndpoint {
		return 0, nil, noStream
	}
	url = gateway + "/" + string(target)
	status, text, code = a.post(ctx, t, url, body)
	if code == "" && status >= http.StatusBadRequest {
		return status, text, ""
	}
	// Also where the answer to the POST is lost: what it sent may be answered all the same.
	within, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	defer context.AfterFunc(within, func() { stream.Body.Close() })()
	if t.Kind == "cancel" {
		a.rest(ctx, time.Second)
		a.post(ctx, t, url, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
		defer time.AfterFunc(time.Second, cancel).Stop()
	}
	for {
		if event, err = next(lines); err != nil {
			return 0, nil, "stream without an answer"
		}
		if bytes.Contains(event, []byte(`"id":7`)) {
			return http.StatusOK, event, ""
		}
	}
}

// next returns the data of the next event.
func next(lines *bufio.Reader) ([]byte, error) {
	for {
		line, err := lines.ReadBytes('\n')
		if data, isData := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data: ")); isData {
			return data, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// understand reads what an answer, as JSON or as an event stream, says of the execution.
func understand(status int, text []byte) (answer answer, code, task string) {
	for line := range bytes.Lines(text) {
		data, isEvent := bytes.CutPrefix(line, []byte("data: "))
		if !isEvent {
			data = text
		}
		var message struct {
			Error *struct {
				Message string
				Data    struct{ Code string }
			}
			Result *struct {
				IsError bool
				Task    struct{ TaskID string }
				Meta    struct {
					Decision struct{ Code string } `json:"tidewaiter.dev/decision"`
				} `json:"_meta"`
			}
		}
		err := json.Unmarshal(data, &message)
		switch {
		case err == nil && message.Result != nil && message.Result.Meta.Decision.Code != "":
			return byGateway(message.Result.Meta.Decision.Code)
		case err == nil && message.Error != nil && message.Error.Data.Code != "":
			return byGateway(message.Error.Data.Code)
		case err == nil && message.Result != nil && message.Result.Task.TaskID != "":
			return nothing, "task", message.Result.Task.TaskID
		case err == nil && message.Result != nil && status == http.StatusOK:
			if message.Result.IsError {
				return executed, "tool error", ""
			}
			return executed, "success", ""
		case err == nil && message.Error != nil && status == http.StatusServiceUnavailable:
			return refused, "HTTP 503", ""
		case err == nil && message.Error != nil:
			return nothing, fmt.Sprintf("HTTP %d", status), ""
		}
	}
	return nothing, fmt.Sprintf("HTTP %d, unreadable", status), ""
}

// byGateway reads a code of the gateway. All but one mean that it did not pass the message on.
func byGateway(code string) (answer answer, text, task string) {
	if code == "OutcomeUnknown" {
		return nothing, code, ""
	}
	return refused, code, ""
}
