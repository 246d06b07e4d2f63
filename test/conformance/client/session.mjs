// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

import { Client, SSEClientTransport, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const patience = 30_000;

// Session is one client, and what has reached it.
export class Session {
  #options;
  #sse;

  // Without sse it speaks Streamable HTTP.
  constructor(url, { sse, ...options }) {
    this.url = new URL(url);
    this.#sse = sse;
    this.#options = options;
    this.notifications = [];
    this.requests = [];
    this.progress = [];
  }

  // open connects, as a person's client with a model would.
  async open() {
    const client = new Client({ name: 'tidewaiter-conformance', version: '1.0.0' }, { capabilities: { sampling: {}, elicitation: {}, roots: { listChanged: true } }, ...this.#options });
    client.setRequestHandler('sampling/createMessage', request => {
      this.requests.push(request);
      return { role: 'assistant', model: 'none', stopReason: 'endTurn', content: { type: 'text', text: 'Low water.' } };
    });
    client.setRequestHandler('elicitation/create', request => {
      this.requests.push(request);
      const given = Object.entries(request.params.requestedSchema.properties).map(([name, { type }]) => [name, type === 'boolean' ? true : 'crane']);
      return { action: 'accept', content: Object.fromEntries(given) };
    });
    client.setRequestHandler('roots/list', request => {
      this.requests.push(request);
      return { roots: [{ uri: 'file:///quay', name: 'quay' }] };
    });
    client.fallbackNotificationHandler = async notification => {
      this.notifications.push(notification);
    };
    this.transport = this.#sse ? new SSEClientTransport(this.url) : this.#streamable();
    await client.connect(this.transport);
    this.#listen();
    this.client = client;
    return { server: client.getServerVersion(), capabilities: client.getServerCapabilities(), instructions: client.getInstructions(), version: client.getNegotiatedProtocolVersion?.() };
  }

  #streamable() {
    return new StreamableHTTPClientTransport(this.url, {
      fetch: (...request) => this.#fetch(...request),
      // Longer than what a step leaves to be done: the reference server gives who comes back only what is there by then.
      reconnectionOptions: { initialReconnectionDelay: 2000, maxReconnectionDelay: 4000, reconnectionDelayGrowFactor: 2, maxRetries: 5 }
    });
  }

  // listen takes down what reaches the client of progress on its latest call: a server may go on with one that was cancelled.
  // The client itself drops what arrives in one piece with the answer.
  #listen() {
    const { transport } = this;
    const deliver = transport.onmessage;
    const send = transport.send.bind(transport);
    let latest;
    transport.send = (message, ...rest) => {
      latest = message.params?._meta?.progressToken ?? latest;
      return send(message, ...rest);
    };
    transport.onmessage = (message, ...rest) => {
      if (message.method === 'notifications/progress') {
        const { progressToken, ...one } = message.params;
        if (progressToken === latest) this.progress.push(one);
      }
      deliver(message, ...rest);
    };
  }

  async close() {
    await this.client?.close();
  }

  // until waits for a condition.
  async until(what, condition) {
    const end = Date.now() + patience;
    while (!condition()) {
      if (Date.now() > end) throw new Error(`${what}: it did not come`);
      await new Promise(resolve => setTimeout(resolve, 20));
    }
  }

  // notified waits for a notification, and returns it.
  async notified(method) {
    await this.until(method, () => this.notifications.some(one => one.method === method));
    return this.notifications.find(one => one.method === method);
  }

  // asked runs a step, and returns its result with what the server has asked meanwhile.
  async asked(step) {
    this.requests = [];
    const result = await step();
    return { result, requests: this.requests };
  }

  // progressOf runs a step that asks for progress, and returns its result with the progress that was made meanwhile.
  async progressOf(step) {
    this.progress = [];
    const result = await step({ onprogress: () => undefined });
    return { progress: [...this.progress], result };
  }

  // cutNext has the next answer that is a stream break off after its second event, as a bad network would.
  cutNext() {
    this.cut = true;
    this.resumed = [];
  }

  async #fetch(input, init) {
    const last = new Headers(init?.headers).get('last-event-id');
    const response = await fetch(input, init);
    if (last && this.resumed) this.resumed.push(response.status);
    if (!this.cut || init?.method !== 'POST' || !response.headers.get('content-type')?.startsWith('text/event-stream')) return response;
    this.cut = false;
    let events = 0;
    const breaks = new TransformStream({
      transform(chunk, controller) {
        controller.enqueue(chunk);
        if (++events === 2) controller.error(new Error('The network is gone'));
      }
    });
    return new Response(response.body.pipeThrough(breaks), response);
  }
}
