// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

import { acceptedContent, CLIENT_CAPABILITIES_META_KEY, inputRequired } from '@modelcontextprotocol/server';
import * as z from 'zod';

const text = words => ({ content: [{ type: 'text', text: words }] });
const aString = z.object({}).catchall(z.string());

function elicit(message, name, type = 'string') {
  return inputRequired.elicit({ message, requestedSchema: { type: 'object', properties: { [name]: { type } }, required: [name] } });
}

function sample(words, maxTokens) {
  return inputRequired.createMessage({ messages: [{ role: 'user', content: { type: 'text', text: words } }], maxTokens });
}

// field returns what the person filled in, if it is a string.
function field(ctx, key, name) {
  return acceptedContent(ctx.mcpReq.inputResponses, key, aString)?.[name];
}

// addRounds adds the tools that need several rounds.
export function addRounds(server, states) {
  addSingle(server);
  addStateful(server, states);
  server.registerTool('test_input_required_result_capabilities', { description: 'Asks only what the client can answer' }, ctx => {
    const can = ctx.mcpReq.envelope?.[CLIENT_CAPABILITIES_META_KEY] ?? {};
    const inputRequests = {};
    if (can.sampling) inputRequests.model = sample('What is the tide?', 50);
    if (can.elicitation) inputRequests.person = elicit('What is the tide?', 'tide');
    if (Object.keys(inputRequests).length === 0 || ctx.mcpReq.inputResponses) return text('Nothing more to ask.');
    return inputRequired({ inputRequests });
  });
}

function addSingle(server) {
  server.registerTool('test_input_required_result_elicitation', { description: 'Asks the person for a name' }, ctx => {
    const name = field(ctx, 'user_name', 'name');
    if (name === undefined) return inputRequired({ inputRequests: { user_name: elicit('What is your name?', 'name') } });
    return text(`Welcome aboard, ${name}.`);
  });
  server.registerTool('test_input_required_result_sampling', { description: 'Asks the model' }, ctx => {
    const answer = ctx.mcpReq.inputResponses?.capital_question;
    if (answer === undefined) return inputRequired({ inputRequests: { capital_question: sample('What is the capital of France?', 100) } });
    return text(`The model says: ${answer.content?.text}`);
  });
  server.registerTool('test_input_required_result_list_roots', { description: 'Asks for the roots' }, ctx => {
    const answer = ctx.mcpReq.inputResponses?.client_roots;
    if (answer === undefined) return inputRequired({ inputRequests: { client_roots: inputRequired.listRoots() } });
    return text(`You have ${answer.roots?.map(root => root.uri).join(', ')}.`);
  });
}

function addStateful(server, states) {
  // Both ask once and know their own state again; a state that was changed does not get as far as this.
  for (const name of ['test_input_required_result_request_state', 'test_input_required_result_tampered_state']) {
    server.registerTool(name, { description: 'Asks, and gives the client a state to keep' }, async ctx => {
      if (ctx.mcpReq.requestState()?.tool === name) return text('state-ok');
      return inputRequired({ inputRequests: { confirm: elicit('Go on?', 'ok', 'boolean') }, requestState: await states.mint({ tool: name }) });
    });
  }
  server.registerTool('test_input_required_result_multiple_inputs', { description: 'Asks person, model and client at once' }, async ctx => {
    const given = ctx.mcpReq.inputResponses ?? {};
    const keys = ['user_name', 'greeting', 'client_roots'];
    if (ctx.mcpReq.requestState() && keys.every(key => key in given)) return text('I have all three.');
    const inputRequests = { user_name: elicit('What is your name?', 'name'), greeting: sample('Greet the ship.', 50), client_roots: inputRequired.listRoots() };
    return inputRequired({ inputRequests, requestState: await states.mint({ asked: keys }) });
  });
  server.registerTool('test_input_required_result_multi_round', { description: 'Asks twice, one after the other' }, async ctx => {
    const state = ctx.mcpReq.requestState();
    const name = state?.name ?? field(ctx, 'step1', 'name');
    if (state === undefined || name === undefined) {
      return inputRequired({ inputRequests: { step1: elicit('What is your name?', 'name') }, requestState: await states.mint({ round: 1 }) });
    }
    const color = field(ctx, 'step2', 'color');
    if (color === undefined) {
      return inputRequired({ inputRequests: { step2: elicit('What is your colour?', 'color') }, requestState: await states.mint({ round: 2, name }) });
    }
    return text(`${name} sails under ${color}.`);
  });
}
