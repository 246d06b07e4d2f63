// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// What the scenarios expect a server to have. Names, and values that a check compares, are the suite's; the rest is
// ours.

import { createRequestStateCodec, McpServer, ResourceTemplate } from '@modelcontextprotocol/server';

import { addPrompts } from './prompts.mjs';
import { addRounds } from './rounds.mjs';
import { addTools } from './tools.mjs';
import { pixel } from './samples.mjs';

// Only this process mints and reads states.
const states = createRequestStateCodec({ key: crypto.getRandomValues(new Uint8Array(32)) });

// fixture returns a server for one session, or for one request of the era without sessions: then subscribers is what
// tells those of other requests of a change.
export function fixture(subscribers) {
  const server = new McpServer(
    { name: 'tidewaiter-conformance', version: '1.0.0' },
    {
      capabilities: {
        tools: { listChanged: true },
        prompts: { listChanged: true },
        resources: { listChanged: true, subscribe: true },
        completions: {},
        logging: {}
      },
      requestState: { verify: states.verify }
    }
  );
  addTools(server, subscribers ?? { toolsChanged: () => server.sendToolListChanged(), promptsChanged: () => server.sendPromptListChanged() });
  addRounds(server, states);
  addPrompts(server);
  addResources(server);
  if (!subscribers) acceptSubscriptions(server);
  return server;
}

function addResources(server) {
  server.registerResource('text', 'test://static-text', { title: 'Text', description: 'A text that stays as it is', mimeType: 'text/plain' }, uri => ({
    contents: [{ uri: uri.href, mimeType: 'text/plain', text: 'High water at noon.' }]
  }));
  server.registerResource('binary', 'test://static-binary', { title: 'Image', description: 'An image of one pixel', mimeType: 'image/png' }, uri => ({
    contents: [{ uri: uri.href, mimeType: 'image/png', blob: pixel }]
  }));
  server.registerResource('watched', 'test://watched-resource', { title: 'Watched', description: 'One that clients subscribe to', mimeType: 'text/plain' }, uri => ({
    contents: [{ uri: uri.href, mimeType: 'text/plain', text: 'The tide has not turned.' }]
  }));
  const template = new ResourceTemplate('test://template/{id}/data', { list: undefined });
  server.registerResource('data', template, { title: 'Data', description: 'What is known of an id', mimeType: 'application/json' }, (uri, { id }) => ({
    contents: [{ uri: uri.href, mimeType: 'application/json', text: JSON.stringify({ id, berth: 7 }) }]
  }));
}

// The high-level server leaves subscriptions of the era with sessions to its user.
function acceptSubscriptions(server) {
  const subscribed = new Set();
  server.server.setRequestHandler('resources/subscribe', ({ params }) => {
    subscribed.add(params.uri);
    return {};
  });
  server.server.setRequestHandler('resources/unsubscribe', ({ params }) => {
    subscribed.delete(params.uri);
    return {};
  });
}
