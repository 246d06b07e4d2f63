// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build failpoints

package failpoint

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// order is when a process dies.
type order struct {
	point Point
	times int64
	delay time.Duration
}

var (
	given = sync.OnceValue(func() order { return parse(os.Getenv(Variable)) })
	hits  atomic.Int64
)

// parse reads an order. One that cannot be read is a mistake of whoever tests, who must learn of it.
func parse(text string) (o order) {
	if text == "" {
		return o
	}
	name, when, _ := strings.Cut(text, "=")
	times, delay, delayed := strings.Cut(when, "+")
	var err error
	if o.times, err = strconv.ParseInt(times, 10, 64); err != nil {
		panic(Variable + ": " + err.Error())
	}
	if delayed {
		if o.delay, err = time.ParseDuration(delay); err != nil {
			panic(Variable + ": " + err.Error())
		}
	}
	o.point = Point(name)
	return o
}

// Hit kills this process if it was told to die here.
func Hit(at Point) {
	o := given()
	if at != o.point || hits.Add(1) != o.times {
		return
	}
	if o.delay > 0 {
		time.AfterFunc(o.delay, func() { die(at) })
		return
	}
	die(at)
	select {} // the kill is on its way: nothing may happen any more here
}

// Sync is File.Sync, and notes how much of the file a loss of power would leave. The note itself need not outlive one.
func Sync(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	note, err := os.OpenFile(f.Name()+syncedSuffix, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(note, "%020d", info.Size())
	return errors.Join(err, note.Close())
}

// die ends the process as kill -9 does.
func die(at Point) {
	fmt.Fprintln(os.Stderr, "failpoint", at)
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	if err != nil {
		panic(err)
	}
}
