// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// hungUp tells whether the other side has closed a connection, whatever of it was not read yet.
func hungUp(conn syscall.RawConn) (gone bool) {
	err := conn.Control(func(fd uintptr) {
		of := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		_, err := unix.Poll(of, 0)
		gone = err == nil && of[0].Revents != 0
	})
	return gone || err != nil // it is closed on this side
}
