// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package expr

// Check compares the expression with the input schema of a tool that it may meet, and says what cannot be right.
func (p *Program) Check(inputSchema []byte) []Problem { return nil }
