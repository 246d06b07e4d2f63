// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

import { setTimeout as wait } from 'node:timers/promises';

import { fromJsonSchema, inputRequired } from '@modelcontextprotocol/server';

import { pixel, silence } from './samples.mjs';

const text = words => ({ content: [{ type: 'text', text: words }] });
const embedded = (uri, mimeType, words) => ({ type: 'resource', resource: { uri, mimeType, text: words } });
const strings = (...names) => fromJsonSchema({ type: 'object', properties: Object.fromEntries(names.map(name => [name, { type: 'string' }])), required: names });

// addTools adds the tools of the scenarios, but those of several rounds. Both eras have all of them: who governs a server
// asks for its tools in one era only.
export function addTools(server, changed) {
  addContents(server);
  addStreams(server);
  addQuestions(server);
  addSchemas(server);
  addModern(server, changed);
}

function addContents(server) {
  const image = { type: 'image', data: pixel, mimeType: 'image/png' };
  server.registerTool('test_simple_text', { description: 'Answers with a text' }, () => text('High water at noon.'));
  server.registerTool('test_image_content', { description: 'Answers with an image' }, () => ({ content: [image] }));
  server.registerTool('test_audio_content', { description: 'Answers with a sound' }, () => ({ content: [{ type: 'audio', data: silence, mimeType: 'audio/wav' }] }));
  server.registerTool('test_embedded_resource', { description: 'Answers with a resource' }, () => ({
    content: [embedded('test://embedded-resource', 'text/plain', 'Two crates of tea.')]
  }));
  server.registerTool('test_multiple_content_types', { description: 'Answers with a text, an image and a resource' }, () => ({
    content: [{ type: 'text', text: 'See below.' }, image, embedded('test://mixed-content-resource', 'application/json', '{"crates":2}')]
  }));
  server.registerTool('test_error_handling', { description: 'Fails, always' }, () => {
    throw new Error('This tool never works');
  });
}

function addStreams(server) {
  server.registerTool('test_tool_with_logging', { description: 'Logs while it runs' }, async ctx => {
    for (const line of ['begun', 'half done', 'done']) {
      await ctx.mcpReq.log('info', line);
      await wait(50);
    }
    return text('It has logged.');
  });
  server.registerTool('test_tool_with_progress', { description: 'Tells how far it is, if it is asked to' }, async ctx => {
    const progressToken = ctx.mcpReq._meta?.progressToken;
    for (const progress of [0, 50, 100]) {
      if (progressToken !== undefined) {
        await ctx.mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress, total: 100 } });
      }
      await wait(50);
    }
    return text('It is done.');
  });
  server.registerTool('test_reconnection', { description: 'Ends the stream before it answers' }, async ctx => {
    ctx.http?.closeSSE?.();
    await wait(200);
    return text('Here again.');
  });
}

// within has a question go out on the stream of the call that asks it. Without it the question goes to the stream that the
// client listens on, and is lost if that stream does not stand yet.
const within = ctx => ({ relatedRequestId: ctx.mcpReq.id });

function addQuestions(server) {
  server.registerTool('test_sampling', { description: 'Has the client ask its model', inputSchema: strings('prompt') }, async ({ prompt }, ctx) => {
    const messages = [{ role: 'user', content: { type: 'text', text: prompt } }];
    const answer = await ctx.mcpReq.requestSampling({ messages, maxTokens: 100 }, within(ctx));
    return text(`The model says: ${answer.content.text}`);
  });
  const ask = async (ctx, message, requestedSchema) => {
    const { action, content } = await ctx.mcpReq.elicitInput({ message, requestedSchema }, within(ctx));
    return text(`The person says: ${action} ${JSON.stringify(content)}`);
  };
  server.registerTool('test_elicitation', { description: 'Asks the person', inputSchema: strings('message') }, ({ message }, ctx) =>
    ask(ctx, message, {
      type: 'object',
      properties: { username: { type: 'string', description: 'Your name' }, email: { type: 'string', description: 'Your address' } },
      required: ['username', 'email']
    })
  );
  server.registerTool('test_elicitation_sep1034_defaults', { description: 'Asks the person, with defaults' }, ctx =>
    ask(ctx, 'Is this right?', {
      type: 'object',
      properties: {
        name: { type: 'string', default: 'John Doe' },
        age: { type: 'integer', default: 30 },
        score: { type: 'number', default: 95.5 },
        status: { type: 'string', enum: ['active', 'inactive', 'pending'], default: 'active' },
        verified: { type: 'boolean', default: true }
      }
    })
  );
  const values = ['value1', 'value2', 'value3'].map((value, at) => ({ const: value, title: `Berth ${at + 1}` }));
  const options = ['option1', 'option2', 'option3'];
  server.registerTool('test_elicitation_sep1330_enums', { description: 'Asks the person to choose' }, ctx =>
    ask(ctx, 'Which?', {
      type: 'object',
      properties: {
        untitledSingle: { type: 'string', enum: options },
        titledSingle: { type: 'string', oneOf: values },
        legacyEnum: { type: 'string', enum: ['opt1', 'opt2', 'opt3'], enumNames: ['First', 'Second', 'Third'] },
        untitledMulti: { type: 'array', items: { type: 'string', enum: options } },
        titledMulti: { type: 'array', items: { anyOf: values } }
      }
    })
  );
}

function addSchemas(server) {
  const schema = {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    type: 'object',
    $defs: { address: { $anchor: 'addressDef', type: 'object', properties: { street: { type: 'string' }, city: { type: 'string' } } } },
    properties: {
      name: { type: 'string' },
      address: { $ref: '#/$defs/address' },
      contactMethod: { type: 'string', enum: ['phone', 'email'] },
      phone: { type: 'string' },
      email: { type: 'string' }
    },
    allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
    if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] },
    then: { required: ['phone'] },
    else: { required: ['email'] },
    additionalProperties: false
  };
  server.registerTool('json_schema_2020_12_tool', { description: 'Has a schema with all that JSON Schema 2020-12 has', inputSchema: fromJsonSchema(schema) }, () =>
    text('Noted.')
  );
  const marked = { type: 'object', properties: { region: { type: 'string', 'x-mcp-header': 'Region' } }, required: ['region'] };
  server.registerTool('test_header_argument', { description: 'Has an argument that is in a header too', inputSchema: fromJsonSchema(marked) }, ({ region }) =>
    text(`Region ${region}.`)
  );
}

// addModern adds what only the revision without sessions has scenarios for.
function addModern(server, changed) {
  server.registerTool('test_missing_capability', { description: 'Needs a client that has a model' }, ctx => {
    if (ctx.mcpReq.inputResponses?.model) return text('You have one.');
    const messages = [{ role: 'user', content: { type: 'text', text: 'Are you there?' } }];
    return inputRequired({ inputRequests: { model: inputRequired.createMessage({ messages, maxTokens: 10 }) } });
  });
  server.registerTool('test_streaming_elicitation', { description: 'Needs an answer of the person' }, () => {
    const requestedSchema = { type: 'object', properties: { ok: { type: 'boolean' } } };
    return inputRequired({ inputRequests: { ok: inputRequired.elicit({ message: 'All right?', requestedSchema }) } });
  });
  server.registerTool('test_logging_tool', { description: 'Logs, if it is asked to' }, async ctx => {
    await ctx.mcpReq.log('info', 'The tide turns');
    return text('It has logged, if you asked for it.');
  });
  server.registerTool('test_trigger_tool_change', { description: 'Has clients look at the tools again' }, () => {
    changed.toolsChanged();
    return text('They are told.');
  });
  server.registerTool('test_trigger_prompt_change', { description: 'Has clients look at the prompts again' }, () => {
    changed.promptsChanged();
    return text('They are told.');
  });
}
