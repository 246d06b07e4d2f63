// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package main

// scenarios in their order. The first one installs what the others use, the last one takes it away.
var scenarios = []scenario{
	{"newcomer", "the README's five commands, as they stand there", newcomer},
	{"pods", "the gateway gets into pods with the label, and into no others", pods},
	{"calls", "an agent's calls are governed, and a person approves", calls},
	{"direct", "nothing walks around the gateway, and a server that could be reached is told of", direct},
	{"alone", "a gateway in pods of its own, before a server that takes a credential", alone},
	{"stdio", "a server of standard input and output is governed", stdio},
	{"held", "what becomes of agents that wait", held},
	{"restarts", "restarts under load lose no approval, and execute none twice", restarts},
	{"upgrade", "an upgrade keeps what is there", upgrade},
	{"uninstall", "what was installed goes, in two orders", uninstall},
}
