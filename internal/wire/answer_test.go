// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidewaiter/tidewaiter/internal/wire"
)

func TestAnAnswerThatClientsReadDifferentlyProvesNothing(t *testing.T) {
	t.Parallel()
	id := []byte("1")
	for name, tc := range map[string]struct {
		message string
		want    wire.Answer
		wantErr bool
	}{
		"a result":         {`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`, wire.Answer{ID: id, Complete: true}, false},
		"an error":         {`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":""}}`, wire.Answer{ID: id, Error: true, Code: -32601}, false},
		"both":             {`{"jsonrpc":"2.0","id":1,"result":{"content":[]},"error":{"code":-32601,"message":""}}`, wire.Answer{ID: id, Error: true}, false},
		"both, no success": {`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":""},"result":null}`, wire.Answer{ID: id, Error: true}, false},
		"IsError":          {`{"jsonrpc":"2.0","id":1,"result":{"IsError":true}}`, wire.Answer{ID: id}, false},
		"is_error beside":  {`{"jsonrpc":"2.0","id":1,"result":{"isError":false,"is_error":true}}`, wire.Answer{ID: id}, false},
		"resulttype":       {`{"jsonrpc":"2.0","id":1,"result":{"resulttype":"input_required"}}`, wire.Answer{ID: id}, false},
		"Task":             {`{"jsonrpc":"2.0","id":1,"result":{"Task":{}}}`, wire.Answer{ID: id}, false},
		"Error beside":     {`{"jsonrpc":"2.0","id":1,"result":{},"Error":{"code":1}}`, wire.Answer{}, true},
		"Result beside":    {`{"jsonrpc":"2.0","id":1,"error":{"code":-32601},"Result":{}}`, wire.Answer{}, true},
		"ID beside":        {`{"jsonrpc":"2.0","id":1,"ID":2,"result":{}}`, wire.Answer{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, found, err := wire.ScanAnswer([]byte(tc.message))
			if (err != nil) != tc.wantErr || found == tc.wantErr {
				t.Fatalf("found %t, error %v", found, err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}
