// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// What the fixture server and a client of revision 2026-07-28 say to each other: single requests, no session.

export const options = { versionNegotiation: { mode: { pin: '2026-07-28' } } };

const call = (name, args = {}) => session => session.asked(() => session.client.callTool({ name, arguments: args }));

export const steps = {
  'server/discover': session => session.open(),
  'tools/list': ({ client }) => client.listTools(),
  'tools/call': call('test_multiple_content_types'),
  'tools/call with a header': call('test_header_argument', { region: 'zürich' }),
  'a question to the person': call('test_input_required_result_elicitation'),
  'a question to the model': call('test_input_required_result_sampling'),
  'a question for the roots': call('test_input_required_result_list_roots'),
  'several questions at once': call('test_input_required_result_multiple_inputs'),
  'several rounds': call('test_input_required_result_multi_round'),
  'a prompt that asks': session => session.asked(() => session.client.getPrompt({ name: 'test_input_required_result_prompt' })),
  'prompts/list': ({ client }) => client.listPrompts(),
  'resources/list': ({ client }) => client.listResources(),
  'resources/read': ({ client }) => client.readResource({ uri: 'test://template/7/data' }),
  'completion/complete': ({ client }) => client.complete({ ref: { type: 'ref/prompt', name: 'test_prompt_with_arguments' }, argument: { name: 'arg1', value: 'test' } }),
  progress: session => session.progressOf(options => session.client.callTool({ name: 'test_tool_with_progress', arguments: {} }, options)),
  'subscriptions/listen': async session => {
    const subscription = await session.client.listen({ toolsListChanged: true });
    await session.client.callTool({ name: 'test_trigger_tool_change', arguments: {} });
    const { method } = await session.notified('notifications/tools/list_changed');
    await subscription.close();
    return method;
  }
};
