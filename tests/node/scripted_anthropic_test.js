// The official Anthropic client against a server that answers with what the last message says
// behind "say:": node scripted_anthropic_test.js URL MODEL.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { parameters, refusal, routeArguments, runCases, twoCalls, weatherArguments } from "./cases.js";

const [baseURL, model] = process.argv.slice(2);
const client = new Anthropic({ baseURL, apiKey: "any", maxRetries: 0, timeout: 60_000 });

const say = (text) => [{ role: "user", content: `say:${text}` }];
const tools = ["weather", "route"].map((name) => ({ name, description: name, input_schema: parameters }));
const base = { model, max_tokens: 1500 };
const plain = { type: "disabled" };

function checkCalls(content) {
  const calls = content.filter((block) => block.type === "tool_use");
  assert.deepEqual(calls.map((call) => call.name), ["weather", "route"]);
  assert.deepEqual(calls[0].input, weatherArguments);
  assert.deepEqual(calls[1].input, routeArguments);
  return calls;
}

const cases = {
  async "thinking, text and usage, whole and streamed"() {
    const asked = { ...base, messages: say("I think.</think>Answer: é 中 😀") };
    const whole = await client.messages.create(asked);
    assert.deepEqual(whole.content.map((block) => block.type), ["thinking", "text"]);
    assert.equal(whole.content[0].thinking, "I think.");
    assert.equal(whole.content[1].text, "Answer: é 中 😀");
    assert.equal(whole.stop_reason, "end_turn");
    const stream = client.messages.stream(asked);
    let text = "";
    stream.on("text", (delta) => (text += delta));
    const final = await stream.finalMessage();
    assert.equal(text, "Answer: é 中 😀");
    assert.equal(final.content[0].thinking, "I think.");
    assert.equal(final.usage.output_tokens, whole.usage.output_tokens);
    assert.equal(final.usage.input_tokens, whole.usage.input_tokens);
  },
  async "without thinking"() {
    const whole = await client.messages.create({ ...base, thinking: plain, messages: say("Yes") });
    assert.deepEqual(whole.content.map((block) => block.type), ["text"]);
  },
  async "two parallel calls, and their results"() {
    const asked = { ...base, messages: say(`Hm.</think>${twoCalls}`), tools };
    const whole = await client.messages.create(asked);
    assert.equal(whole.stop_reason, "tool_use");
    const calls = checkCalls(whole.content);
    const final = await client.messages.stream(asked).finalMessage();
    checkCalls(final.content);
    const results = calls.map((call) => ({
      type: "tool_result", tool_use_id: call.id, content: "done",
    }));
    const next = await client.messages.create({
      ...base, tools, thinking: plain,
      messages: [
        ...asked.messages,
        { role: "assistant", content: whole.content },
        { role: "user", content: [...results, { type: "text", text: "say:Fine" }] },
      ],
    });
    assert.equal(next.content[0].text, "Fine");
  },
  async "a stop sequence is named, a limit too"() {
    const stopped = await client.messages.create({
      ...base, thinking: plain, messages: say("one two"), stop_sequences: ["two"],
    });
    assert.equal(stopped.stop_reason, "stop_sequence");
    assert.equal(stopped.stop_sequence, "two");
    const cut = await client.messages.create({
      ...base, thinking: plain, messages: say("one two"), max_tokens: 3,
    });
    assert.equal(cut.stop_reason, "max_tokens");
    assert.equal(cut.content[0].text, "one");
  },
  async "counts tokens as an answer does"() {
    const messages = say("</think>x");
    const counted = await client.messages.countTokens({ model, messages });
    const whole = await client.messages.create({ ...base, messages });
    assert.equal(counted.input_tokens, whole.usage.input_tokens + whole.usage.cache_read_input_tokens);
  },
  async "errors have Anthropic's shape"() {
    const error = await refusal(
      client.messages.create({ ...base, messages: [] }),
      Anthropic.BadRequestError, 400, /at least one message is required/);
    assert.equal(error.error.type, "error");
    assert.equal(error.error.error.type, "invalid_request_error");
  },
  async "an aborted stream leaves a server that answers"() {
    const stream = await client.messages.create({
      ...base, messages: say("a".repeat(900)), stream: true,
    });
    for await (const event of stream) {
      assert.equal(event.type, "message_start");
      break;
    }
    const whole = await client.messages.create({ ...base, thinking: plain, messages: say("Still") });
    assert.equal(whole.content[0].text, "Still");
  },
};

await runCases(cases);
