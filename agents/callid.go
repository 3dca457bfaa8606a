package agents

import (
	"context"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

type callIDKey struct{}

// callIDs tells a tool which call the SDK's tool runner is running. The runner passes the id
// only to the span of the call, so this is a tracer that records nothing and puts the id into
// the tool's context.
type callIDs struct{ noop.TracerProvider }

func (callIDs) Tracer(string, ...trace.TracerOption) trace.Tracer { return callTracer{} }

type callTracer struct{ noop.Tracer }

func (t callTracer) Start(ctx context.Context, name string, o ...trace.SpanStartOption) (context.Context, trace.Span) {
	config := trace.NewSpanStartConfig(o...)
	for _, a := range config.Attributes() {
		if a.Key == "gen_ai.tool.call.id" {
			ctx = context.WithValue(ctx, callIDKey{}, a.Value.AsString())
		}
	}
	return t.Tracer.Start(ctx, name, o...)
}

func callID(ctx context.Context) string {
	id, _ := ctx.Value(callIDKey{}).(string)
	return id
}
