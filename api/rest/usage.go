package rest

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/openapi"
	"github.com/bothy-dev/bothy/internal/usagecsv"
)

const csvType = "text/csv"

type usageInput struct {
	Accept   string `header:"Accept" hidden:"true"`
	From     string `query:"from" doc:"From when: RFC 3339, or a day. By default the beginning of this month." example:"2026-01-01"`
	To       string `query:"to" doc:"Until when, exclusive. By default now." example:"2026-02-01T00:00:00Z"`
	GroupBy  string `query:"group_by" doc:"What to group by, separated by commas: day or hour, project, template, sandbox, and label:KEY for a key of the metadata." default:"day" example:"day,label:team"`
	Project  string `query:"project" doc:"Only this project. Without it, the default project's admin sees all projects, anyone else their own."`
	Sandbox  string `query:"sandbox" doc:"Only this sandbox and its snapshots."`
	Template string `query:"template" doc:"Only sandboxes of this template."`
	Limit    int    `query:"limit" minimum:"1" maximum:"10000" default:"1000" doc:"The most groups to return."`
	Cursor   string `query:"cursor" doc:"The next_cursor of the previous page."`
}

func (in *usageInput) query() (q bothy.UsageQuery, err error) {
	q = bothy.UsageQuery{Project: in.Project, Sandbox: in.Sandbox, Template: in.Template, Limit: in.Limit, Cursor: in.Cursor}
	if q.From, err = parseDate("from", in.From); err != nil {
		return q, err
	}
	if q.To, err = parseDate("to", in.To); err != nil {
		return q, err
	}
	for word := range strings.SplitSeq(in.GroupBy, ",") {
		if word = strings.TrimSpace(word); word != "" {
			q.GroupBy = append(q.GroupBy, word)
		}
	}
	return q, nil
}

// parseDate parses a time or a day; an empty one is the zero time.
func parseDate(name, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, form := range []string{time.RFC3339Nano, time.DateOnly} {
		if t, err := time.Parse(form, text); err == nil && t.Year() >= 1970 {
			return t.UTC(), nil
		}
	}
	return time.Time{}, bothy.Errorf(bothy.CodeInvalid, "%s, %q, is not a time", name, text).
		WithHint("Write it as 2026-01-31 or 2026-01-31T12:00:00Z, and + as %%2B in a URL.")
}

func (s *handlers) registerUsage() {
	svc := s.services.Usage
	if svc == nil {
		return
	}
	openapi.Add(s.registry, middleware.Operation{
		ID: "get-usage", Method: http.MethodGet, Path: "/v1/usage", Tag: "Usage",
		Summary: "Show usage", Scope: bothy.ScopeSandboxesRead,
		Text: "What projects have used, and what it costs by the server's rates, in groups sorted by what they are grouped by. " +
			"Usage is kept by the hour: `from` and `to` are widened to whole hours, which the answer shows. " +
			"With `Accept: text/csv`, the groups of the page as a table with a header; `X-Next-Cursor` is then the next page's.",
		Returns: []middleware.Form{middleware.As[bothy.UsageReport]("application/json"), middleware.Bytes(csvType)},
	}, func(ctx context.Context, in *usageInput) (*openapi.Response, error) {
		q, err := in.query()
		if err != nil {
			return nil, err
		}
		r, err := svc.Usage(ctx, q)
		if err != nil {
			return nil, err
		}
		return openapi.Respond(func(w http.ResponseWriter, _ *http.Request) {
			if strings.Contains(in.Accept, csvType) {
				writeUsageCSV(w, r)
				return
			}
			openapi.WriteJSON(w, http.StatusOK, r)
		}), nil
	})
}

func writeUsageCSV(w http.ResponseWriter, r *bothy.UsageReport) {
	w.Header().Set("Content-Type", csvType+"; charset=utf-8")
	if r.NextCursor != "" {
		w.Header().Set("X-Next-Cursor", r.NextCursor)
	}
	_ = usagecsv.Write(w, r)
}
