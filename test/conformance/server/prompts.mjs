// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

import { acceptedContent, completable, inputRequired } from '@modelcontextprotocol/server';
import * as z from 'zod';

import { pixel } from './samples.mjs';

const user = content => ({ role: 'user', content });
const says = text => user({ type: 'text', text });

// addPrompts adds the prompts of the scenarios.
export function addPrompts(server) {
  server.registerPrompt('test_simple_prompt', { title: 'Simple', description: 'Has no arguments' }, () => ({
    messages: [says('When is high water?')]
  }));

  const harbours = ['testport', 'testhaven', 'lisbon'];
  const argsSchema = z.object({
    arg1: completable(z.string().describe('A harbour'), begun => harbours.filter(name => name.startsWith(begun))),
    arg2: z.string().describe('A ship')
  });
  server.registerPrompt('test_prompt_with_arguments', { title: 'Arguments', description: 'Puts its arguments into a message', argsSchema }, ({ arg1, arg2 }) => ({
    messages: [says(`Is ${arg2} in ${arg1}?`)]
  }));

  const embedded = z.object({ resourceUri: z.string().describe('What to embed') });
  server.registerPrompt('test_prompt_with_embedded_resource', { title: 'Resource', description: 'Embeds a resource', argsSchema: embedded }, ({ resourceUri }) => ({
    messages: [user({ type: 'resource', resource: { uri: resourceUri, mimeType: 'text/plain', text: 'Two crates of tea.' } }), says('Read the list above.')]
  }));

  server.registerPrompt('test_prompt_with_image', { title: 'Image', description: 'Shows an image' }, () => ({
    messages: [user({ type: 'image', data: pixel, mimeType: 'image/png' }), says('Look at the image above.')]
  }));

  server.registerPrompt('test_input_required_result_prompt', { title: 'Asks', description: 'Asks for something before it answers' }, ctx => {
    const given = acceptedContent(ctx.mcpReq.inputResponses, 'user_context', z.object({ context: z.string() }));
    if (given) return { messages: [says(`Bear in mind: ${given.context}`)] };
    const requestedSchema = { type: 'object', properties: { context: { type: 'string' } }, required: ['context'] };
    return inputRequired({ inputRequests: { user_context: inputRequired.elicit({ message: 'What should it bear in mind?', requestedSchema }) } });
  });
}
