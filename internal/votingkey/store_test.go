// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package votingkey

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tidewaiter/tidewaiter/api/v1alpha1"
	"github.com/tidewaiter/tidewaiter/internal/vote"
)

const (
	namespace = "tidewaiter-system"
	month     = 30 * 24 * time.Hour
)

// TestKeysAreSafeWhateverIsInterrupted lets two replicas work in any order, each of their calls getting lost, answered
// or unanswered, while time passes and somebody asks for rotations.
func TestKeysAreSafeWhateverIsInterrupted(t *testing.T) {
	t.Parallel()
	rotations, removals := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		ctx := context.Background()
		replicas := []*replica{newReplica(w.api, w.clock), newReplica(w.api, w.clock)}
		defer func() {
			for _, r := range replicas {
				r.finish(ctx)
			}
		}()
		for range rapid.IntRange(10, 40).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"call", "call", "call", "call", "round", "round", "crash", "time", "time", "rotate", "remove"}).Draw(t, "what") {
			case "call":
				_, err := rapid.SampledFrom(replicas).Draw(t, "who").advance(ctx, answered)
				if err != nil {
					t.Fatalf("a round: %v", err)
				}
			case "round":
				w.round(ctx, t, rapid.SampledFrom(replicas).Draw(t, "who"))
			case "crash":
				r := rapid.SampledFrom(replicas).Draw(t, "who")
				_, _ = r.advance(ctx, rapid.SampledFrom([]fate{lost, unanswered}).Draw(t, "how"))
			case "time":
				w.clock.Step(rapid.SampledFrom([]time.Duration{time.Second, 20 * time.Second, lead, 6 * time.Hour, 26 * time.Hour, month}).Draw(t, "for"))
			case "rotate":
				if secret := w.secret(t); secret.ResourceVersion != "" {
					secret.Annotations = map[string]string{v1alpha1.RotateAnnotation: ""}
					if err := w.api.Update(ctx, secret); err != nil {
						t.Fatal(err)
					}
					rotations++
				}
			case "remove":
				if rapid.IntRange(0, 3).Draw(t, "dice") > 0 {
					continue
				}
				secret := w.secret(t)
				keys, err := parse(secret.Data)
				if err != nil {
					t.Fatal(err)
				}
				if k, inUse := keys.current(w.clock.Now()); inUse {
					delete(secret.Data, k.id())
					if err := w.api.Update(ctx, secret); err != nil {
						t.Fatal(err)
					}
					w.void[k.id()], w.bare = true, true
					removals++
				}
			}
			w.look(t)
		}
		w.settle(ctx, t, replicas)
	})
	t.Logf("%d rotations, %d removals", rotations, removals)
	if rotations == 0 || removals == 0 {
		t.Error("nothing was rotated or removed: the test proves nothing")
	}
}

// round has a replica end the round that it is in, or do one.
func (w *world) round(ctx context.Context, t fataler, r *replica) {
	t.Helper()
	for {
		ended, err := r.advance(ctx, answered)
		if err != nil {
			t.Fatalf("a round: %v", err)
		}
		w.look(t)
		if ended {
			return
		}
	}
}

// settle lets every replica do a round without trouble: then there is a key to sign with, and what was removed is void.
func (w *world) settle(ctx context.Context, t fataler, replicas []*replica) {
	t.Helper()
	for _, r := range replicas {
		r.finish(ctx)
		w.round(ctx, t, r)
	}
	if _, err := w.store.Current(ctx); err != nil {
		t.Fatalf("no key after all: %v", err)
	}
	for id := range w.configMap(t).Data {
		if w.void[id] {
			t.Fatalf("the key %s was removed and is still published", id)
		}
	}
}

func (w *world) ensure(t fataler) {
	t.Helper()
	if err := w.store.ensure(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func (w *world) current(t fataler) string {
	t.Helper()
	k, err := w.store.Current(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return k.ID
}

func TestARotationLosesNoVote(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.current(t) // the first key is made by whoever asks for it
	secret := w.secret(t)
	secret.Annotations = map[string]string{v1alpha1.RotateAnnotation: "", "other": "stays"}
	if err := w.api.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	w.ensure(t)
	if annotations := w.secret(t).Annotations; len(annotations) != 1 || annotations["other"] != "stays" {
		t.Errorf("annotations after the rotation: %v", annotations)
	}
	if keys, err := w.store.Published(t.Context()); err != nil || len(keys) != 2 {
		t.Fatalf("published: %v, %v", keys, err)
	}
	w.clock.Step(lead - time.Second)
	w.ensure(t)
	if got := w.current(t); got != first {
		t.Errorf("after 59 s %s signs, want the first, %s", got, first)
	}
	w.clock.Step(2 * time.Second)
	second := w.current(t)
	if second == first {
		t.Error("after 61 s the first key still signs")
	}
	w.ensure(t)
	for _, tc := range []struct {
		after time.Duration
		want  bool
	}{{24 * time.Hour, true}, {time.Hour + time.Second, false}} {
		w.clock.Step(tc.after)
		w.ensure(t)
		keys, err := w.store.Published(t.Context())
		if _, there := keys[first]; err != nil || there != tc.want {
			t.Errorf("the replaced key is published: %t, want %t (%v)", there, tc.want, err)
		}
		if _, there := w.configMap(t).Data[first]; there != tc.want {
			t.Errorf("the replaced key is in the ConfigMap: %t, want %t", there, tc.want)
		}
	}
}

func TestTheConfigMapFollowsTheSecret(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.current(t)

	// Removed from the ConfigMap only, it comes back; so does the root, and what is not ours goes.
	configMap := w.configMap(t)
	configMap.Data = map[string]string{"junk": "x", vote.RootEntry: "x"}
	if err := w.api.Update(t.Context(), configMap); err != nil {
		t.Fatal(err)
	}
	w.ensure(t)
	data := w.configMap(t).Data
	root, err := vote.ParseRoot(data[vote.RootEntry])
	if err != nil {
		t.Fatal(err)
	}
	keys, err := vote.ParseKeys(data, root)
	if _, there := keys[first]; err != nil || !there || len(keys) != 1 {
		t.Fatalf("after the ConfigMap was spoilt: %v, %v", keys, err)
	}

	// Removed from the Secret, it is void, and another signs at once.
	secret := w.secret(t)
	delete(secret.Data, first)
	if err := w.api.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if keys, err := w.store.Published(t.Context()); err != nil || len(keys) != 0 {
		t.Errorf("the removed key counts: %v, %v", keys, err)
	}
	if got := w.current(t); got == first {
		t.Error("the removed key signs")
	}
	if _, there := w.configMap(t).Data[first]; there {
		t.Error("the removed key is published")
	}
}

func TestWhatCannotBeReadIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		spoil func(*testing.T, *world)
		want  string
	}{
		"a bad entry": {func(t *testing.T, w *world) {
			secret := w.secret(t)
			secret.Data["0011223344556677"] = []byte("x")
			if err := w.api.Update(t.Context(), secret); err != nil {
				t.Fatal(err)
			}
		}, "are left as they are: the entry"},
		"no root": {func(t *testing.T, w *world) {
			secret := w.secret(t)
			delete(secret.Data, vote.RootEntry)
			if err := w.api.Update(t.Context(), secret); err != nil {
				t.Fatal(err)
			}
		}, `no entry "root": restore the Secret`},
		"no Secret, and its keys published": {func(t *testing.T, w *world) {
			if err := w.api.Delete(t.Context(), w.secret(t)); err != nil {
				t.Fatal(err)
			}
		}, "is gone or empty"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.current(t)
			tc.spoil(t, w)
			secret, configMap := w.secret(t).ResourceVersion, w.configMap(t).ResourceVersion
			err := w.store.ensure(t.Context())
			if err == nil || !contains(err, tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if _, err := w.store.Current(t.Context()); err == nil {
				t.Error("votes are signed all the same")
			}
			if w.secret(t).ResourceVersion != secret || w.configMap(t).ResourceVersion != configMap {
				t.Error("something was written")
			}
		})
	}
}

func TestWithoutBothARootIsMadeAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.current(t)
	root := w.configMap(t).Data[vote.RootEntry]
	for _, object := range []client.Object{w.secret(t), w.configMap(t)} {
		if err := w.api.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	w.ensure(t)
	if got := w.configMap(t).Data[vote.RootEntry]; got == "" || got == root {
		t.Errorf("root %q after %q", got, root)
	}
}

func TestAWriterThatNeverRestsIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.store.Client = interceptor.NewClient(w.api, interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return apierrors.NewConflict(corev1.Resource("secrets"), v1alpha1.VotingKeys, fmt.Errorf("again"))
		},
	})
	if err := w.store.ensure(t.Context()); err == nil || !contains(err, "somebody else") {
		t.Errorf("got %v", err)
	}
}
