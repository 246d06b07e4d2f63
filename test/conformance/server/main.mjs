// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// The fixture server for the scenarios of the MCP conformance suite, on the TypeScript SDK. One address serves both
// eras: sessions with a memory of their events for the revisions up to 2025-11-25, single requests for 2026-07-28.
// Usage: node main.mjs PORT

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';

import { localhostHostValidation, localhostOriginValidation, NodeStreamableHTTPServerTransport, toNodeHandler, toWebRequest } from '@modelcontextprotocol/node';
import { createMcpHandler, isInitializeRequest, isLegacyRequest } from '@modelcontextprotocol/server';

import { EventMemory } from './events.mjs';
import { fixture } from './fixture.mjs';

const sessions = new Map();
const modern = createMcpHandler(() => fixture(modern.notify), { legacy: 'reject' });
const answerModern = toNodeHandler(modern);
const hostIsLocal = localhostHostValidation();
const originIsLocal = localhostOriginValidation();

function refuse(response, status, message) {
  response.writeHead(status, { 'Content-Type': 'application/json' });
  response.end(JSON.stringify({ jsonrpc: '2.0', id: null, error: { code: -32000, message } }));
}

async function read(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const text = Buffer.concat(chunks).toString('utf8');
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

async function open(request, response, body) {
  const server = fixture();
  const transport = new NodeStreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    onsessioninitialized: id => sessions.set(id, transport),
    onsessionclosed: id => sessions.delete(id),
    eventStore: new EventMemory(),
    retryInterval: 100
  });
  await server.connect(transport);
  await transport.handleRequest(request, response, body);
}

async function serve(request, response) {
  if (!hostIsLocal(request, response) || !originIsLocal(request, response)) return;
  if (new URL(request.url, 'http://localhost').pathname !== '/mcp') return refuse(response, 404, 'The endpoint is /mcp');
  const body = request.method === 'POST' ? await read(request) : undefined;
  if (!(await isLegacyRequest(await toWebRequest(request, body), body))) return answerModern(request, response, body);
  const id = request.headers['mcp-session-id'];
  if (id !== undefined) {
    const transport = sessions.get(id);
    return transport ? transport.handleRequest(request, response, body) : refuse(response, 404, 'No such session');
  }
  if (isInitializeRequest(body)) return open(request, response, body);
  return refuse(response, 400, 'A session is needed: send initialize first');
}

createServer((request, response) => {
  serve(request, response).catch(error => {
    console.error(error);
    if (!response.headersSent) refuse(response, 500, 'The fixture failed');
  });
}).listen(Number(process.argv[2]), '127.0.0.1');
