// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// A client on the TypeScript SDK that goes through what a server can, and prints what it got, step by step, as JSON.
// Usage: node main.mjs SCRIPT URL, with a script of this folder: everything, stream, sessions or single.

import { Session } from './session.mjs';

const [script, url] = process.argv.slice(2);
const { options, steps } = await import(`./${script}.mjs`);
const session = new Session(url, options);
const got = {};
for (const [name, step] of Object.entries(steps)) {
  try {
    got[name] = (await step(session)) ?? null;
  } catch (error) {
    // What an HTTP error of a server says is part of its message.
    got[name] = { error: error.message, code: error.code, data: error.data };
  }
}
await session.close();
console.log(JSON.stringify(got));
process.exit(0);
