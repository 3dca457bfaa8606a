package storetest

import (
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

func testWebhooks(t *testing.T, f *fixture) {
	want := full[store.Webhook](t)
	want.ID, want.ProjectID, want.CreatedAt = "whole", "p", epoch
	f.must(f.PutWebhook(f.ctx, want))
	f.must(f.PutWebhook(f.ctx, &store.Webhook{Webhook: bothy.Webhook{ID: "later", ProjectID: "p", CreatedAt: epoch.Add(time.Second)}}))
	f.must(f.PutWebhook(f.ctx, &store.Webhook{Webhook: bothy.Webhook{ID: "other", ProjectID: "q", CreatedAt: epoch}}))
	f.reopen()

	want.Secret = "" // is kept only sealed
	got, err := f.Webhook(f.ctx, "p", "whole")
	f.must(err)
	equal(t, got, want)
	_, err = f.Webhook(f.ctx, "q", "whole")
	f.wantCode(err, bothy.CodeNotFound)
	f.wantWebhooks("p", "whole", "later")
	f.wantWebhooks("none")
	f.wantWebhooks("", "other", "whole", "later")

	// What is configured and how far it has come do not overwrite each other.
	at := epoch.Add(time.Minute)
	f.must(f.SetWebhookState(f.ctx, "whole", bothy.WebhookState{LastEventID: 7, DeliveredAt: &at}))
	want.Name, want.WebhookState = "renamed", bothy.WebhookState{LastEventID: 1}
	f.must(f.PutWebhook(f.ctx, want))
	want.WebhookState = bothy.WebhookState{LastEventID: 7, DeliveredAt: &at}
	got, err = f.Webhook(f.ctx, "p", "whole")
	f.must(err)
	equal(t, got, want)

	f.wantCode(f.DeleteWebhook(f.ctx, "q", "whole"), bothy.CodeNotFound)
	f.must(f.DeleteWebhook(f.ctx, "p", "whole"))
	f.wantCode(f.DeleteWebhook(f.ctx, "p", "whole"), bothy.CodeNotFound)
	f.must(f.SetWebhookState(f.ctx, "whole", bothy.WebhookState{}))
	f.wantWebhooks("p", "later")
}

func (f *fixture) wantWebhooks(project string, want ...string) {
	f.Helper()
	list, err := f.Webhooks(f.ctx, project)
	f.must(err)
	var ids []string
	for _, w := range list {
		ids = append(ids, w.ID)
	}
	equal(f.T, ids, want)
}
