package access

import (
	"context"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// HoldID is Hold for a caller who proves in another way that it was admitted with the project's
// key that has this id.
func (t *Tokens) HoldID(ctx context.Context, projectID, id string, end func(cause error)) (*bothy.Caller, func(), error) {
	for {
		generation := t.holders.now()
		token, err := t.byID(ctx, projectID, id)
		if err != nil {
			return nil, nil, err
		}
		if at := token.ExpiresAt; at != nil && !t.now().Before(*at) {
			return nil, nil, expiredKey(*at)
		}
		if release, ok := t.hold(generation, token, end); ok {
			return callerOf(token), release, nil
		}
	}
}

// IDs lists the ids of a project's keys, for the server itself.
func (t *Tokens) IDs(ctx context.Context, projectID string) ([]string, error) {
	list, err := t.store.Tokens(ctx, projectID)
	ids := make([]string, len(list))
	for i, token := range list {
		ids[i] = token.ID
	}
	return ids, err
}

func (t *Tokens) byID(ctx context.Context, projectID, id string) (*store.Token, error) {
	e, generation := t.cache.getID(id)
	if e != nil {
		if e.token.ProjectID != projectID {
			return nil, unknownKey()
		}
		return e.token, nil
	}
	list, err := t.store.Tokens(ctx, projectID)
	if err != nil {
		return nil, err
	}
	for _, token := range list {
		if token.ID == id {
			return t.cache.add(generation, token).token, nil
		}
	}
	return nil, revokedKey()
}
