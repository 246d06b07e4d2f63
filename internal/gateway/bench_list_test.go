// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
)

// manyTools governs a server of so many tools, half of which may be called, and returns its list of them.
func (r *rig) manyTools(count int) []byte {
	r.t.Helper()
	var list bytes.Buffer
	list.WriteString(`{"jsonrpc":"2.0","id":1,"result":{"tools":[`)
	r.edit(func() {
		r.governed.Status.Tools, r.listed = nil, nil
		for i := range count {
			d := describe(r.t, fmt.Sprintf("get_thing_%d", i), strings.Repeat("what it does ", 20))
			r.listed = append(r.listed, d)
			if i%2 == 0 {
				r.governed.Status.Tools = append(r.governed.Status.Tools, v1alpha1.ToolStatus{Name: d.Name, ClassifiedTier: v1alpha1.TierRead, Tier: v1alpha1.TierRead, Digest: d.Digest()})
			}
			if i > 0 {
				list.WriteByte(',')
			}
			list.Write(d.Raw)
		}
	})
	list.WriteString(`]}}`)
	return list.Bytes()
}

// BenchmarkList filters a list of 1,000 tools, as it does for every agent that asks for them.
func BenchmarkList(b *testing.B) {
	r := newRig(b)
	list := r.manyTools(1000)
	filter := r.gateway.listFilter(r.server, r.server.dials(), caller{}, []byte("1"))
	b.ReportAllocs()
	b.SetBytes(int64(len(list)))
	for b.Loop() {
		if out := filter(list); !bytes.Contains(out, []byte(`"name":"get_thing_998"`)) || bytes.Contains(out, []byte(`"name":"get_thing_999"`)) {
			b.Fatal("not filtered")
		}
	}
}

func TestAListIsFilteredWithoutACopyOfEveryTool(t *testing.T) {
	const count = 1000
	r := newRig(t)
	list := r.manyTools(count)
	filter := r.gateway.listFilter(r.server, r.server.dials(), caller{}, []byte("1"))
	filter(list) // what the tools are is learned once
	allocations := testing.AllocsPerRun(5, func() {
		if out := filter(list); !bytes.Contains(out, []byte(`"name":"get_thing_998"`)) {
			t.Fatal("not filtered")
		}
	})
	// Its name, its notes and what is put around them; read anew it would be 14 of one that is hidden, and more of others.
	if allocations > 6*count {
		t.Errorf("%.1f allocations a tool", allocations/count)
	}
}
