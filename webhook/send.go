package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// attemptTime bounds one request with its answer.
const attemptTime = 15 * time.Second

// Refused is the failure of a receiver that does not want an event: sending it again will hardly
// help.
type refused struct{ error }

// gone is the failure of a receiver that wants no more events.
type gone struct{ error }

// post sends one event, once.
func (s *Service) post(ctx context.Context, w *store.Webhook, e bothy.Event) (status int, err error) {
	encode := s.encoder(w.Format)
	if encode == nil {
		return 0, gone{fmt.Errorf("this server does not send the format %q", w.Format)}
	}
	secret, err := s.secret(w)
	if err != nil {
		return 0, fmt.Errorf("the secret cannot be read: %w", err)
	}
	body, h, err := encode(ctx, &w.Webhook, secret, e, time.Now())
	if err != nil || body == nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		return 0, refused{err}
	}
	req.Header = h
	h.Set("Content-Type", "application/json")
	h.Set("User-Agent", "Bothy-Webhook/1")
	res, err := s.client.Do(req)
	if err != nil {
		return 0, plainly(err)
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10))
	return res.StatusCode, judge(res)
}

// judge interprets an answer.
func judge(res *http.Response) error {
	err := fmt.Errorf("the receiver answered %s", strings.TrimSpace(res.Status))
	switch c := res.StatusCode; {
	case c/100 == 2:
		return nil
	case c/100 == 3:
		return fmt.Errorf("%w, and redirects are not followed", err)
	case c == http.StatusGone:
		return gone{err}
	case c == http.StatusRequestTimeout, c == http.StatusTooEarly, c == http.StatusTooManyRequests:
		return err
	case c == http.StatusUnauthorized, c == http.StatusForbidden, c == http.StatusNotFound, c == http.StatusMethodNotAllowed:
		return err // for any event: the receiver is not set up
	case c/100 == 4:
		return refused{err}
	}
	return err
}

// plainly removes the URL from an error: it can be long or contain a secret.
func plainly(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	var op *net.OpError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the receiver did not answer within %v", attemptTime)
	case errors.As(err, &op) && op.Op == "dial":
		return fmt.Errorf("the receiver cannot be reached: %w", op.Err)
	}
	return err
}

// secretPrefix begins the secrets of Standard Webhooks; the rest is base64.
const secretPrefix = "whsec_"

// standard encodes an event by the specification Standard Webhooks.
func standard(_ context.Context, w *bothy.Webhook, secret string, e bothy.Event, sent time.Time) ([]byte, http.Header, error) {
	body, err := json.Marshal(e)
	if err != nil {
		return nil, nil, err
	}
	id, at := fmt.Sprintf("%s_%d", w.ID, e.ID), strconv.FormatInt(sent.Unix(), 10)
	h := http.Header{}
	h.Set("Webhook-Id", id)
	h.Set("Webhook-Timestamp", at)
	h.Set("Webhook-Signature", Sign(secret, id, at, body))
	return body, h, nil
}

// Sign returns the signature of a request in the standard format.
func Sign(secret, id, timestamp string, body []byte) string {
	key := []byte(secret)
	if text, ok := strings.CutPrefix(secret, secretPrefix); ok {
		if b, err := base64.StdEncoding.DecodeString(text); err == nil {
			key = b
		}
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", id, timestamp, body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// TestWebhook implements bothy.WebhookService.
func (s *Service) TestWebhook(ctx context.Context, id string) (*bothy.WebhookTest, error) {
	w, err := s.row(ctx, id)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	status, err := s.post(ctx, w, bothy.Event{
		Time: began.UTC(), Type: bothy.EventWebhookTest, ProjectID: w.ProjectID, Data: map[string]string{"webhook_id": w.ID},
	})
	t := &bothy.WebhookTest{Status: status, Milliseconds: float64(time.Since(began).Microseconds()) / 1000}
	if err != nil {
		t.Error = err.Error()
	}
	return t, ctx.Err()
}
