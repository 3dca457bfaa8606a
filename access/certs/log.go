package certs

import (
	"context"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// zapLogger returns a zap logger, as the library wants, that writes to log.
func zapLogger(log *slog.Logger) *zap.Logger { return zap.New(core{log: log}) }

type core struct{ log *slog.Logger }

func level(l zapcore.Level) slog.Level {
	switch {
	case l >= zapcore.ErrorLevel:
		return slog.LevelError
	case l == zapcore.WarnLevel:
		return slog.LevelWarn
	case l == zapcore.InfoLevel:
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

func attrs(fields []zapcore.Field) []any {
	e := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(e)
	}
	out := make([]any, 0, len(e.Fields))
	for k, v := range e.Fields {
		out = append(out, slog.Any(k, v))
	}
	return out
}

// Enabled implements zapcore.Core.
func (c core) Enabled(l zapcore.Level) bool {
	return c.log.Enabled(context.Background(), level(l))
}

// With implements zapcore.Core.
func (c core) With(fields []zapcore.Field) zapcore.Core { return core{c.log.With(attrs(fields)...)} }

// Check implements zapcore.Core.
func (c core) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

// Write implements zapcore.Core.
func (c core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	c.log.Log(context.Background(), level(e.Level), "certificates: "+e.Message, attrs(fields)...)
	return nil
}

// Sync implements zapcore.Core.
func (c core) Sync() error { return nil }
