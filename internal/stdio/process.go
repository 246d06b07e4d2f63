// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package stdio

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// patience is how long a process may take to end after it was asked to, each time more firmly.
	patience = 3 * time.Second
	// writeWithin is how long a process may take to read one message.
	writeWithin = 30 * time.Second
)

// process is a server that runs, in a process group of its own.
type process struct {
	cmd     *exec.Cmd
	in, out *os.File
	lines   *bufio.Reader
	exited  chan struct{}
	asked   atomic.Bool
	stopped sync.Once
	writing sync.Mutex
}

// start runs a command. Whoever gets it reads until it says nothing more.
func start(command []string, stderr io.Writer) (*process, error) {
	theirIn, ourIn, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	ourOut, theirOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, theirIn.Close(), ourIn.Close())
	}
	cmd := exec.Command(command[0], command[1:]...) //nolint:noctx // it outlives the request that starts it; stop ends it
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirIn, theirOut, stderr
	cmd.WaitDelay = patience
	ownGroup(cmd)
	err = cmd.Start()
	err = errors.Join(err, theirIn.Close(), theirOut.Close())
	if err != nil {
		return nil, errors.Join(err, ourIn.Close(), ourOut.Close())
	}
	p := &process{cmd: cmd, in: ourIn, out: ourOut, lines: bufio.NewReaderSize(ourOut, 64<<10), exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // state tells
		killGroup(cmd) // what it started and left
		close(p.exited)
		// A process that left the group may hold the other end for ever; what was said before is read by then.
		time.AfterFunc(patience, func() { _ = p.out.Close() })
	}()
	return p, nil
}

// read returns the next line; false at the end, or after one that is too long.
func (p *process) read() ([]byte, bool) {
	var line []byte
	for {
		part, err := p.lines.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line, true
		case errors.Is(err, bufio.ErrBufferFull) && len(line) <= maxMessage:
		default:
			select { // one that ends by itself was not told to
			case <-p.exited:
			case <-time.After(patience):
			}
			p.stop()
			return nil, false
		}
	}
}

// write gives the process one line. One that does not read is stopped.
func (p *process) write(line []byte, now time.Time) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	_ = p.in.SetWriteDeadline(now.Add(writeWithin)) // a pipe that knows no deadline waits for the reader
	_, err := p.in.Write(append(slices.Clip(line), '\n'))
	if err != nil {
		killGroup(p.cmd)
	}
	return err
}

// stop ends the process: by the end of its input, as MCP has it, then by signals. It returns when it is gone.
func (p *process) stop() {
	p.stopped.Do(func() {
		select {
		case <-p.exited:
		default:
			p.asked.Store(true)
		}
		_ = p.in.Close() // it has no more to hear
		for _, firmer := range []func(*exec.Cmd){termGroup, killGroup} {
			select {
			case <-p.exited:
			case <-time.After(patience):
				firmer(p.cmd)
			}
		}
		<-p.exited
		_ = p.out.Close() // what still holds the other end is none of ours
	})
}

// told tells whether the process was asked to end, and did not end by itself.
func (p *process) told() bool { return p.asked.Load() }

func (p *process) state() string {
	<-p.exited
	return p.cmd.ProcessState.String()
}
