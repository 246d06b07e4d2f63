// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// What the reference server of the protocol can over HTTP+SSE, where the stream is the session and nothing is resumed.

import { steps as all } from './everything.mjs';

export const options = { sse: true };

const { resumption, 'the end of the session': end, ...rest } = all;

export const steps = {
  ...rest,
  'many at once': async ({ client }) => {
    const sums = Array.from({ length: 20 }, (_, i) => client.callTool({ name: 'get-sum', arguments: { a: i, b: 1 } }));
    return Promise.all(sums);
  }
};
