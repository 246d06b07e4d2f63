// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidewaiter/tidewaiter/internal/glyph"
)

// errNotDone is in every error of a verb that was understood, and did not get its way.
var errNotDone = errors.New("not done")

// notDone is an error with a whole sentence for the person.
func notDone(format string, args ...any) error {
	return notDoneError{text: fmt.Sprintf(format, args...)}
}

type notDoneError struct{ text string }

func (e notDoneError) Error() string { return e.text }

func (notDoneError) Is(target error) bool { return target == errNotDone }

// admissionNoise is what the API server puts before the sentence of a webhook or of an admission policy.
var admissionNoise = []*regexp.Regexp{
	regexp.MustCompile(`^admission webhook "[^"]*" denied the request: `),
	regexp.MustCompile(`^[a-z.]+ "[^"]*" is (?:forbidden|invalid): (?:ValidatingAdmissionPolicy '[^']*' with binding '[^']*' denied request: )`),
}

// noWebhook is what the API server says of a webhook that it cannot reach. Behind the name follows the webhook's URL,
// and with it a path that is nobody's to know.
var noWebhook = regexp.MustCompile(`failed calling webhook "[^"]*"`)

// withoutAddress cuts off what an error says behind the name of a webhook that was not reached.
func withoutAddress(text string) string {
	if found := noWebhook.FindStringIndex(text); found != nil {
		return text[:found[1]]
	}
	return text
}

// refusal returns why the API server refused, as a sentence: what a webhook or an admission policy said comes without
// the names of these, and everything else as it is.
func refusal(err error) string {
	text := err.Error()
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		text = status.Status().Message
	}
	for _, noise := range admissionNoise {
		if place := noise.FindStringIndex(text); place != nil {
			return glyph.Plain(text[place[1]:])
		}
	}
	return glyph.Plain(withoutAddress(text))
}

// admissionRefused tells whether a webhook or an admission policy refused with a sentence of its own.
func admissionRefused(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return false
	}
	for _, noise := range admissionNoise {
		if noise.MatchString(status.Status().Message) {
			return true
		}
	}
	return false
}

// lines makes a text harmless that has line breaks of our own: every error of a verb goes through it.
func lines(text string) string {
	var out []string
	for line := range strings.SplitSeq(text, "\n") {
		out = append(out, glyph.Plain(withoutAddress(line)))
	}
	return strings.Join(out, "\n")
}

// warnings prints what the API server warns of.
type warnings struct{ out io.Writer }

// tallyWarning is what the webhook tells those who vote without this plugin, which says it itself.
var tallyWarning = regexp.MustCompile(`^\d+ of \d+ approvals; `)

// HandleWarningHeaderWithContext prints one warning.
func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, code int, _, text string) {
	if code == 299 && text != "" && !tallyWarning.MatchString(text) {
		fmt.Fprintf(w.out, "Warning: %s\n", glyph.Plain(text))
	}
}
