package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// engineDead is what a client is told when the engine is gone.
const engineDead = "EngineCore encountered an issue. See stack trace (above) for the root cause."

// answer writes one generation to its client.
type answer struct {
	w           http.ResponseWriter
	r           *http.Request
	req         *request
	g           *generation
	chat        bool
	model       string // as JSON
	fingerprint string
}

// usage is the count that clients should believe.
type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Total      int `json:"total_tokens"`
	Completion int `json:"completion_tokens"`
}

func (a *answer) usage(completion int) usage {
	return usage{a.req.promptTokens, a.req.promptTokens + completion, completion}
}

// collect waits for tokens, or the end. It returns false when the client is gone.
func (a *answer) collect() (tokens []token, reason, stopReason string, ok bool) {
	for len(tokens) == 0 && reason == "" {
		select {
		case <-a.req.more:
			tokens, reason, stopReason = a.req.take()
		case <-a.r.Context().Done():
			return nil, "", "", false
		}
	}
	return tokens, reason, stopReason, true
}

// whole answers with one JSON object.
func (a *answer) whole() {
	var all []token
	for {
		tokens, reason, stopReason, ok := a.collect()
		if !ok {
			return
		}
		all = append(all, tokens...)
		switch reason {
		case "":
		case "error":
			writeError(a.w, http.StatusInternalServerError, "InternalServerError", "", engineDead)
			return
		default:
			writeJSON(a.w, http.StatusOK, a.object(all, reason, stopReason))
			return
		}
	}
}

// object is the answer of a request without streaming.
func (a *answer) object(all []token, reason, stopReason string) map[string]any {
	text := textOf(all)
	choice := map[string]any{"index": 0, "logprobs": a.logprobs(all), "finish_reason": reason, "stop_reason": orNull(stopReason), "token_ids": nil}
	object := map[string]any{
		"id": a.id(), "object": "text_completion", "created": time.Now().Unix(), "model": json.RawMessage(a.model), "choices": []any{choice},
		"usage": a.usage(a.req.generated), "system_fingerprint": orNull(a.fingerprint),
	}
	if a.chat {
		object["object"] = "chat.completion"
		choice["message"] = map[string]any{"role": "assistant", "content": strings.TrimSpace(text), "refusal": nil, "tool_calls": []any{}, "reasoning": nil}
	} else {
		choice["text"] = text
	}
	return object
}

// stream answers with server-sent events, one write for all tokens that are there.
func (a *answer) stream() {
	a.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	flush := http.NewResponseController(a.w).Flush
	flush() // the status goes out before the first token
	id, created, total, begun := a.id(), time.Now().Unix(), 0, false
	for {
		tokens, reason, stopReason, ok := a.collect()
		if !ok {
			return
		}
		if reason == "error" {
			fmt.Fprintf(a.w, "data: {\"error\": {\"message\": %q, \"type\": \"InternalServerError\", \"param\": null, \"code\": 500}}\n\ndata: [DONE]\n\n", engineDead)
			flush()
			return
		}
		total += len(tokens)
		if reason != "" {
			total = a.req.generated
		}
		if a.chat && !begun {
			// The role comes together with the first token, not when the stream opens.
			a.chunk(id, created, `{"role":"assistant","content":""}`, nil, "", "", 0)
		}
		begun = true
		a.chunk(id, created, textOf(tokens), tokens, reason, stopReason, total)
		if reason != "" {
			a.close(id, created, total)
			flush()
			return
		}
		flush()
	}
}

// chunk writes one event. It is written by hand, because a benchmark asks for some 50,000 of them per second.
func (a *answer) chunk(id string, created int64, text string, tokens []token, reason, stopReason string, total int) {
	logprobs := "null"
	if lp := a.logprobs(tokens); lp != nil {
		logprobs = jsonText(lp)
	}
	var b strings.Builder
	b.WriteString(`data: {"id":"` + id + `","object":"`)
	if a.chat {
		delta := text
		if tokens != nil || reason != "" {
			delta = `{"content":` + jsonText(text) + `}`
		}
		fmt.Fprintf(&b, `chat.completion.chunk","created":%d,"model":%s,"choices":[{"index":0,"delta":%s,"logprobs":%s,"finish_reason":%s,"token_ids":null}]`,
			created, a.model, delta, logprobs, jsonText(orNull(reason)))
	} else {
		fmt.Fprintf(&b, `text_completion","created":%d,"model":%s,"choices":[{"index":0,"text":%s,"logprobs":%s,"finish_reason":%s,"stop_reason":%s,"prompt_token_ids":null,"token_ids":null}]`,
			created, a.model, jsonText(text), logprobs, jsonText(orNull(reason)), jsonText(orNull(stopReason)))
	}
	if a.g.StreamOptions.ContinuousUsageStats {
		b.WriteString(`,"usage":` + jsonText(a.usage(total)))
	}
	b.WriteString("}\n\n")
	a.w.Write([]byte(b.String()))
}

// close writes the usage, where it was asked for, and the end of the stream.
func (a *answer) close(id string, created int64, total int) {
	if a.g.StreamOptions.IncludeUsage {
		object, print := "text_completion", ""
		if a.chat {
			object = "chat.completion.chunk"
		}
		if a.fingerprint != "" {
			print = `,"system_fingerprint":` + jsonText(a.fingerprint)
		}
		fmt.Fprintf(a.w, `data: {"id":"%s","object":"%s","created":%d,"model":%s,"choices":[],"usage":%s%s}`+"\n\n",
			id, object, created, a.model, jsonText(a.usage(total)), print)
	}
	fmt.Fprint(a.w, "data: [DONE]\n\n")
}

// logprobs are those of the chosen tokens, or nil when nobody asked.
func (a *answer) logprobs(tokens []token) any {
	if !a.g.wantsLogprobs() || len(tokens) == 0 {
		return nil
	}
	if a.chat {
		var content []map[string]any
		for _, t := range tokens {
			content = append(content, map[string]any{"token": t.text, "logprob": t.logprob, "bytes": []byte(nil), "top_logprobs": []any{}})
		}
		return map[string]any{"content": content}
	}
	texts, values := make([]string, len(tokens)), make([]float64, len(tokens))
	for i, t := range tokens {
		texts[i], values[i] = t.text, t.logprob
	}
	return map[string]any{"tokens": texts, "token_logprobs": values, "top_logprobs": nil, "text_offset": make([]int, len(tokens))}
}

func (a *answer) id() string {
	if a.chat {
		return "chatcmpl-" + randomHex(32)
	}
	return "cmpl-" + randomHex(32)
}

func textOf(tokens []token) string {
	var b strings.Builder
	for _, t := range tokens {
		b.WriteString(t.text)
	}
	return b.String()
}

// orNull is s, or JSON's null when there is none.
func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func jsonText(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return "null"
	}
	return string(text)
}
