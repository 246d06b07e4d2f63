// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package expr_test

import (
	"testing"

	"github.com/tidewaiter/tidewaiter/internal/expr"
)

// A server in Go takes "N" for its field n, and one that is kind to its callers customer_id for customerId.
func TestANameThatAServerMayTakeForAnotherIsNoValue(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		source, arguments string
		tells             bool
	}{
		{"args.n <= 5", `{"n":1}`, true},
		{"args.n <= 5", `{"n":1,"N":9}`, false},
		{"args.n <= 5", `{"N":9}`, false},
		{"has(args.n) && args.n > 5", `{"N":9}`, false},
		{"!has(args.n)", `{"N":9}`, false},
		{`"n" in args`, `{"N":9}`, false},
		{`args["n"] > 5`, `{"n":1,"N":9}`, false},
		{`args[?"n"].orValue(1) > 5`, `{"N":9}`, false},
		{"args.?n.orValue(1) > 5", `{"N":9}`, false},
		{"args.exists(k, k == 'n' && args[k] > 5)", `{"N":9}`, false},
		{"args.customerId == 'a'", `{"customerId":"a","customer_id":"b"}`, false},
		{"args.k == 'a'", "{\"k\":\"a\",\"\u212a\":\"b\"}", false},
		{"args.item.price > 5", `{"item":{"price":1,"Price":9}}`, false},
		{"args.items.all(i, i.price < 5)", `{"items":[{"price":1},{"PRICE":9}]}`, false},
		{"args.items.all(i, i.price < 5)", `{"items":[{"price":1},{"price":2}]}`, true},
		{"args.n <= 5", `{"n":1,"x":0.12345678901234567891,"N":9}`, false},
		// What the expression does not read is nobody's concern, and neither is what lies deeper than what it reads.
		{"args.n <= 5", `{"n":1,"a":1,"A":2}`, true},
		{"args.n <= 5", `{"n":1,"manifest":{"N":2}}`, true},
		{"tool.name == 'x' || args.n <= 5", `{"n":1,"manifest":{"Name":2}}`, true},
		{"principal.username == ''", `{"Username":1,"n":1}`, true},
	} {
		_, err := condition(t, tc.source).Holds(&expr.Input{Arguments: expr.NewArguments([]byte(tc.arguments))})
		if (err == nil) != tc.tells {
			t.Errorf("%s over %s: error %v, want one: %t", tc.source, tc.arguments, err, !tc.tells)
		}
	}
}
