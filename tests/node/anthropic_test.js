// The official Anthropic client against a running server: node anthropic_test.js URL MODEL.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { refusal, runCases } from "./cases.js";

const [baseURL, model] = process.argv.slice(2);
const client = new Anthropic({ baseURL, apiKey: "any", maxRetries: 0, timeout: 60_000 });

const question = {
  model,
  messages: [{ role: "user", content: "What comes after Friday?" }],
  temperature: 0,
  max_tokens: 32,
  thinking: { type: "disabled" },
};
const timer = {
  name: "set_timer",
  description: "Start a timer",
  input_schema: {
    type: "object",
    properties: { minutes: { type: "integer" }, label: { type: "string" } },
    required: ["minutes"],
  },
};

const cases = {
  async "answers, whole and streamed, with the same text"() {
    const whole = await client.messages.create(question);
    const text = whole.content[0].text;
    assert.match(text, /Saturday/);
    assert.equal(whole.stop_reason, "end_turn");
    const final = await client.messages.stream(question).finalMessage();
    assert.equal(final.content[0].text, text);
    assert.equal(final.usage.output_tokens, whole.usage.output_tokens);
  },
  async "thinks when it may"() {
    const whole = await client.messages.create({
      ...question,
      thinking: { type: "enabled", budget_tokens: 1024 },
      max_tokens: 200,
    });
    assert.equal(whole.content[0].type, "thinking");
    assert.ok(whole.content[0].thinking.length > 0);
  },
  async "calls a tool, whole and streamed"() {
    const asked = {
      ...question,
      max_tokens: 300,
      tools: [timer],
      messages: [{ role: "user", content: "Set a timer for 41 minutes for the rope." }],
    };
    for (const message of [
      await client.messages.create(asked),
      await client.messages.stream(asked).finalMessage(),
    ]) {
      const call = message.content.find((block) => block.type === "tool_use");
      assert.ok(call, JSON.stringify(message));
      assert.equal(call.name, "set_timer");
      assert.equal(typeof call.input.minutes, "number");
      assert.equal(message.stop_reason, "tool_use");
    }
  },
  async "stops at a stop sequence"() {
    const cut = await client.messages.create({ ...question, stop_sequences: ["after"] });
    assert.equal(cut.stop_reason, "stop_sequence");
    assert.equal(cut.stop_sequence, "after");
  },
  async "counts tokens"() {
    const { input_tokens } = await client.messages.countTokens({ model, messages: question.messages });
    assert.ok(input_tokens > 3);
  },
  async "reports errors in the client's own classes"() {
    await refusal(
      client.messages.create({ ...question, model: "nope" }),
      Anthropic.BadRequestError, 400, /you passed nope/);
  },
  async "survives an aborted stream"() {
    const stream = await client.messages.create({ ...question, max_tokens: 2000, stream: true });
    for await (const event of stream) {
      assert.ok(event.type);
      break; // leaving the loop aborts the request
    }
    assert.ok((await client.messages.create(question)).content.length === 1);
  },
};

await runCases(cases);
