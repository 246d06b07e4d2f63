// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

func TestHolds(t *testing.T) {
	t.Parallel()
	live := func(version string, items ...string) *metav1.PartialObjectMetadataList {
		l := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: version}}
		for i := 0; i+1 < len(items); i += 2 {
			l.Items = append(l.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: types.UID(items[i]), ResourceVersion: items[i+1]}})
		}
		return l
	}
	type cached = map[types.UID]uint64
	for name, tc := range map[string]struct {
		cached cached
		live   *metav1.PartialObjectMetadataList
		want   bool
	}{
		"nothing anywhere":                  {nil, live("10"), true},
		"the same":                          {cached{"a": 5}, live("10", "a", "5"), true},
		"newer than the list":               {cached{"a": 12}, live("10", "a", "5"), true},
		"older than the list":               {cached{"a": 4}, live("10", "a", "5"), false},
		"not there yet":                     {cached{}, live("10", "a", "5"), false},
		"deleted before the list":           {cached{"a": 5}, live("10"), false},
		"made after the list":               {cached{"a": 11}, live("10"), true},
		"recreated under another uid":       {cached{"a": 5}, live("10", "b", "7"), false},
		"a version that is no number":       {cached{"a": 5}, live("10", "a", "x"), false},
		"a list without a version, deleted": {cached{"a": 5}, live(""), false},
	} {
		if got := holds(tc.cached, tc.live); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// TestHoldsSeesEveryChange makes a history of one kind, cuts the watch at one point of it and lists at another: whoever
// is behind is found out, and who is not never is.
func TestHoldsSeesEveryChange(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		states := []map[types.UID]uint64{{}}
		for version := uint64(1); version <= 12; version++ {
			next := maps.Clone(states[len(states)-1])
			uid := types.UID(fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "uid")))
			if _, there := next[uid]; there && rapid.Bool().Draw(t, "deletes") {
				delete(next, uid)
			} else {
				next[uid] = version
			}
			states = append(states, next)
		}
		listedAt, cachedAt := rapid.IntRange(0, 12).Draw(t, "listed at"), rapid.IntRange(0, 12).Draw(t, "cached at")
		live := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(listedAt)}}
		for uid, version := range states[listedAt] {
			live.Items = append(live.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: uid, ResourceVersion: fmt.Sprint(version)}})
		}
		got := holds(states[cachedAt], live)
		if cachedAt < listedAt && got && !maps.Equal(states[cachedAt], states[listedAt]) {
			t.Fatalf("the cache stands at %d, the list at %d, and they differ: not noticed", cachedAt, listedAt)
		}
		if cachedAt == listedAt && !got {
			t.Fatalf("the cache is as new as the list, and is called behind")
		}
	})
}
