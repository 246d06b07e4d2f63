// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

// The events of one session, so that a client that comes back with Last-Event-ID gets what it missed.
export class EventMemory {
  #events = [];

  async storeEvent(stream, message) {
    this.#events.push({ stream, message });
    return String(this.#events.length);
  }

  async getStreamIdForEventId(id) {
    return this.#events[Number(id) - 1]?.stream;
  }

  async replayEventsAfter(last, { send }) {
    const stream = await this.getStreamIdForEventId(last);
    for (let at = Number(last); at < this.#events.length; at++) {
      const event = this.#events[at];
      // The event that opens a stream has no message.
      if (event.stream === stream && Object.keys(event.message).length > 0) await send(String(at + 1), event.message);
    }
    return stream;
  }
}
