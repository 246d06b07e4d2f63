// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// What the reference server of the protocol can.

export const options = {};

const calls = {
  echo: { message: 'ahoy' },
  'get-annotated-message': { messageType: 'error', includeImage: true },
  'get-env': {},
  'get-resource-links': { count: 3 },
  'get-resource-reference': { resourceType: 'Text', resourceId: 2 },
  'get-structured-content': { location: 'Chicago' },
  'get-sum': { a: 2.5, b: 40 },
  'get-tiny-image': {},
  'gzip-file-as-resource': { name: 'a.gz', data: 'data:text/plain,tide', outputType: 'resource' }
};

const long = (steps, duration) => ({ name: 'trigger-long-running-operation', arguments: { steps, duration } });

const call = (name, args) => ({ client }) => client.callTool({ name, arguments: args });
const prompt = (name, args) => ({ client }) => client.getPrompt({ name, arguments: args });
const resource = uri => ({ client }) => client.readResource({ uri });

export const steps = {
  initialize: session => session.open(),
  ping: ({ client }) => client.ping(),
  'tools/list': ({ client }) => client.listTools(),
  ...Object.fromEntries(Object.entries(calls).map(([name, args]) => [`tools/call ${name}`, call(name, args)])),
  'tools/call with wrong arguments': call('get-sum', { a: 'one', b: 2 }),
  'prompts/list': ({ client }) => client.listPrompts(),
  'prompts/get': prompt('simple-prompt'),
  'prompts/get with arguments': prompt('args-prompt', { city: 'Hamburg', state: 'HH' }),
  'prompts/get with a resource': prompt('resource-prompt', { resourceType: 'Text', resourceId: '1' }),
  'prompts/get of none': prompt('no-such-prompt'),
  'resources/list': ({ client }) => client.listResources(),
  'resources/list, a page': ({ client }) => client.listResources({ cursor: 'bm9uZQ==' }),
  'resources/templates/list': ({ client }) => client.listResourceTemplates(),
  'resources/read': resource('demo://resource/static/document/architecture.md'),
  'resources/read of none': resource('demo://resource/none'),
  'completion/complete': ({ client }) =>
    client.complete({ ref: { type: 'ref/prompt', name: 'completable-prompt' }, argument: { name: 'department', value: 'S' } }),
  'completion/complete of a template': ({ client }) =>
    client.complete({ ref: { type: 'ref/resource', uri: 'demo://resource/dynamic/text/{resourceId}' }, argument: { name: 'resourceId', value: '1' } }),
  progress: session => session.progressOf(options => session.client.callTool(long(4, 0.4), options)),
  cancellation: async ({ client }) => {
    const stop = new AbortController();
    const cancelled = client.callTool(long(100, 60), { onprogress: () => stop.abort('enough'), signal: stop.signal });
    await cancelled.then(
      () => Promise.reject(new Error('it was not cancelled')),
      () => undefined
    );
    return client.ping();
  },
  resumption: async session => {
    session.cutNext();
    const tokens = [];
    const answer = await session.progressOf(options => session.client.callTool(long(4, 1), { ...options, onresumptiontoken: token => tokens.push(token) }));
    return { ...answer, hadEventIds: tokens.length > 0, resumed: session.resumed };
  },
  logging: async session => {
    await session.client.setLoggingLevel('debug');
    const result = await session.client.callTool({ name: 'toggle-simulated-logging', arguments: {} });
    const { method, params } = await session.notified('notifications/message');
    await session.client.callTool({ name: 'toggle-simulated-logging', arguments: {} });
    return { result: withoutSession(result), method, fields: Object.keys(params).sort() }; // which message it is is by chance
  },
  subscriptions: async session => {
    await session.client.subscribeResource({ uri: 'demo://resource/dynamic/text/1' });
    const result = await session.client.callTool({ name: 'toggle-subscriber-updates', arguments: {} });
    const updated = await session.notified('notifications/resources/updated');
    await session.client.callTool({ name: 'toggle-subscriber-updates', arguments: {} });
    return { result: withoutSession(result), updated, unsubscribed: await session.client.unsubscribeResource({ uri: 'demo://resource/dynamic/text/1' }) };
  },
  'list_changed of resources': async session => {
    await session.client.callTool({ name: 'gzip-file-as-resource', arguments: { name: 'b.gz', data: 'data:text/plain,tide', outputType: 'resourceLink' } });
    return session.notified('notifications/resources/list_changed');
  },
  'a method that nobody has': ({ client }) => client.request({ method: 'x/none', params: {} }, { '~standard': { version: 1, vendor: 'x', validate: value => ({ value }) } }),
  'the end of the session': async session => {
    const id = session.transport.sessionId;
    await session.transport.terminateSession();
    const answer = await fetch(session.url, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', Accept: 'application/json, text/event-stream', 'Mcp-Session-Id': id, 'Mcp-Protocol-Version': '2025-11-25' },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping' })
    });
    return { status: answer.status, body: await answer.text() };
  },
  'another session': async session => {
    await session.close();
    await session.open();
    return session.client.ping();
  }
};

function withoutSession(result) {
  return JSON.parse(JSON.stringify(result).replace(/[0-9a-f]{8}-[0-9a-f-]{27}/g, 'SESSION'));
}
