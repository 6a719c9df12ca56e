// The official OpenAI client against a server that answers with what the last message says behind
// "say:": node scripted_openai_test.js BASE_URL MODEL.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { parameters, refusal, routeArguments, runCases, twoCalls, weatherArguments } from "./cases.js";

const [baseURL, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "any", maxRetries: 0, timeout: 60_000 });

const say = (text) => [{ role: "user", content: `say:${text}` }];
const functions = ["weather", "route"].map((name) => ({ name, description: name, parameters }));
const chatTools = functions.map((one) => ({ type: "function", function: one }));
const responseTools = functions.map((one) => ({ type: "function", strict: false, ...one }));
const plain = { type: "disabled" };

function checkCalls(calls) {
  assert.deepEqual(calls.map((call) => call.name), ["weather", "route"]);
  assert.deepEqual(JSON.parse(calls[0].arguments), weatherArguments);
  assert.deepEqual(JSON.parse(calls[1].arguments), routeArguments);
}

const cases = {
  async "chat: thinking, content and usage, whole and streamed"() {
    const asked = { model, messages: say("I think.</think>Answer: é 中 😀") };
    const whole = await client.chat.completions.create(asked);
    assert.equal(whole.choices[0].message.reasoning_content, "I think.");
    assert.equal(whole.choices[0].message.content, "Answer: é 中 😀");
    assert.equal(whole.choices[0].finish_reason, "stop");
    const seen = { content: "", reasoning: "", usage: null };
    for await (const chunk of await client.chat.completions.create({ ...asked, stream: true })) {
      seen.content += chunk.choices[0].delta.content ?? "";
      seen.reasoning += chunk.choices[0].delta.reasoning_content ?? "";
      seen.usage = chunk.usage ?? seen.usage;
    }
    assert.equal(seen.reasoning, "I think.");
    assert.equal(seen.content, "Answer: é 中 😀");
    assert.deepEqual(seen.usage, whole.usage);
    assert.ok(whole.usage.completion_tokens_details.reasoning_tokens > 0);
  },
  async "chat: without thinking all is content"() {
    const whole = await client.chat.completions.create({ model, thinking: plain, messages: say("Yes") });
    assert.equal(whole.choices[0].message.content, "Yes");
    assert.equal(whole.choices[0].message.reasoning_content, undefined);
  },
  async "chat: two parallel calls, and their results"() {
    const asked = { model, messages: say(`Hm.</think>${twoCalls}`), tools: chatTools };
    const whole = (await client.chat.completions.create(asked)).choices[0];
    assert.equal(whole.finish_reason, "tool_calls");
    assert.equal(whole.message.content, "So.");
    checkCalls(whole.message.tool_calls.map((call) => call.function));
    const stream = client.beta.chat.completions.stream({ ...asked, stream: true });
    const streamed = (await stream.finalChatCompletion()).choices[0];
    assert.equal(streamed.finish_reason, "tool_calls");
    checkCalls(streamed.message.tool_calls.map((call) => call.function));
    const results = whole.message.tool_calls.map((call) => ({
      role: "tool", tool_call_id: call.id, content: "done",
    }));
    const next = await client.chat.completions.create({
      model, tools: chatTools, thinking: plain,
      messages: [...asked.messages, whole.message, ...results, ...say("Fine")],
    });
    assert.equal(next.choices[0].message.content, "Fine");
  },
  async "chat: JSON output"() {
    const whole = await client.chat.completions.create({
      model, thinking: plain, response_format: { type: "json_object" },
      messages: say('Here, json:\n```json\n{"a": [1, 2]}\n```\ndone'),
    });
    assert.deepEqual(JSON.parse(whole.choices[0].message.content), { a: [1, 2] });
  },
  async "chat: a stop sequence across tokens"() {
    const whole = await client.chat.completions.create({
      model, thinking: plain, messages: say("one two three"), stop: ["o t"],
    });
    assert.equal(whole.choices[0].message.content, "one tw");
    assert.equal(whole.choices[0].finish_reason, "stop");
  },
  async "chat: errors"() {
    const wrong = { model, messages: say("x"), tools: [{ type: "function", function: { name: "a b" } }] };
    const error = await refusal(
      client.chat.completions.create(wrong), OpenAI.BadRequestError, 400, /does not match pattern/);
    assert.equal(error.type, "invalid_request_error");
  },
  async "responses: text, reasoning and usage, whole and streamed"() {
    const asked = { model, input: "say:I think.</think>Answer: é 中 😀" };
    const whole = await client.responses.create(asked);
    assert.equal(whole.output_text, "Answer: é 中 😀");
    assert.equal(whole.output[0].type, "reasoning");
    assert.equal(whole.status, "completed");
    const seen = { text: "", reasoning: "", last: null };
    for await (const event of await client.responses.create({ ...asked, stream: true })) {
      if (event.type === "response.output_text.delta") seen.text += event.delta;
      if (event.type === "response.reasoning_text.delta") seen.reasoning += event.delta;
      seen.last = event;
    }
    assert.equal(seen.text, "Answer: é 中 😀");
    assert.equal(seen.reasoning, "I think.");
    assert.equal(seen.last.type, "response.completed");
    assert.deepEqual(seen.last.response.usage, whole.usage);
  },
  async "responses: without thinking"() {
    const whole = await client.responses.create({ model, input: "say:Yes", reasoning: { effort: "none" } });
    assert.deepEqual(whole.output.map((item) => item.type), ["message"]);
  },
  async "responses: two parallel calls, and their results"() {
    const asked = { model, input: `say:Hm.</think>${twoCalls}`, tools: responseTools };
    const whole = await client.responses.create(asked);
    const calls = whole.output.filter((item) => item.type === "function_call");
    checkCalls(calls);
    const streamed = [];
    for await (const event of await client.responses.create({ ...asked, stream: true }))
      if (event.type === "response.output_item.done" && event.item.type === "function_call")
        streamed.push(event.item);
    checkCalls(streamed);
    const next = await client.responses.create({
      model, tools: responseTools, previous_response_id: whole.id,
      input: [
        ...calls.map((call) => ({ type: "function_call_output", call_id: call.call_id, output: "done" })),
        { role: "user", content: "say:</think>Fine" },
      ],
    });
    assert.equal(next.output_text, "Fine");
  },
  async "responses: JSON output"() {
    const whole = await client.responses.create({
      model, reasoning: { effort: "none" }, text: { format: { type: "json_object" } },
      input: 'say:json: {"a": [1, 2]}',
    });
    assert.deepEqual(JSON.parse(whole.output_text), { a: [1, 2] });
  },
  async "responses: stored ones are found, continued and deleted"() {
    const first = await client.responses.create({ model, input: "say:</think>One" });
    const found = await client.responses.retrieve(first.id);
    assert.equal(found.output.at(-1).content[0].text, "One");
    const second = await client.responses.create({
      model, input: "say:</think>Two", previous_response_id: first.id,
    });
    assert.equal(second.previous_response_id, first.id);
    assert.ok(second.usage.input_tokens > first.usage.input_tokens);
    await client.responses.del(first.id);
    await refusal(client.responses.retrieve(first.id), OpenAI.NotFoundError, 404, /not found/);
    await refusal(
      client.responses.create({ model, input: "x", previous_response_id: first.id }),
      OpenAI.NotFoundError, 404, /not found/);
  },
  async "responses: errors"() {
    await refusal(
      client.responses.create({ model, input: [] }), OpenAI.BadRequestError, 400, /must not be empty/);
  },
  async "aborted streams leave a server that answers"() {
    const chat = await client.chat.completions.create({
      model, messages: say("a".repeat(900)), stream: true,
    });
    for await (const chunk of chat) {
      assert.ok(chunk.id);
      break;
    }
    const response = await client.responses.create({ model, input: `say:${"b".repeat(900)}`, stream: true });
    for await (const event of response) if (event.type === "response.in_progress") break;
    assert.equal((await client.responses.create({ model, input: "say:</think>Still" })).output_text, "Still");
  },
};

await runCases(cases);
