// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// What the fixture server asks of a client that has a session with it.

export const options = {};

const call = (name, args = {}) => session => session.asked(() => session.client.callTool({ name, arguments: args }));

export const steps = {
  initialize: session => session.open(),
  sampling: call('test_sampling', { prompt: 'What is the tide?' }),
  elicitation: call('test_elicitation', { message: 'Who are you?' }),
  'roots/list': call('test_input_required_result_list_roots'),
  'several questions': call('test_input_required_result_multi_round'),
  logging: async session => {
    await session.client.setLoggingLevel('info');
    const result = await session.client.callTool({ name: 'test_tool_with_logging', arguments: {} });
    return { result, logged: session.notifications.filter(one => one.method === 'notifications/message') };
  },
  'a stream that the server ends': async session => {
    session.resumed = [];
    const result = await session.client.callTool({ name: 'test_reconnection', arguments: {} });
    return { result, resumed: session.resumed };
  },
  'roots/list_changed': ({ client }) => client.sendRootsListChanged(),
  'tools/list_changed': async session => {
    await session.client.callTool({ name: 'test_trigger_tool_change', arguments: {} });
    return session.notified('notifications/tools/list_changed');
  },
  'prompts/list_changed': async session => {
    await session.client.callTool({ name: 'test_trigger_prompt_change', arguments: {} });
    return session.notified('notifications/prompts/list_changed');
  },
  'the end of the session': async session => {
    const headers = { 'Content-Type': 'application/json', Accept: 'application/json, text/event-stream', 'Mcp-Session-Id': session.transport.sessionId };
    await session.transport.terminateSession();
    const answer = await fetch(session.url, { method: 'POST', headers, body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping' }) });
    return { status: answer.status, body: await answer.text() };
  },
  'another session': async session => {
    await session.close();
    return session.open();
  }
};
