package client

import (
	"encoding/json"
	"testing"

	"github.com/bothy-dev/bothy"
)

func TestExecEventsAreParsedLikeJSON(t *testing.T) {
	for _, text := range []string{
		`{"stream":"stdout","data":"aGk=","encoding":"base64","offset":7,"pid":3}`,
		`{"stream":"stdout","data":"a\nb\"","offset":0}`,
		`{"stream":"stderr","data":"héllo","offset":12}`,
		`{"stream":"stdout","data":"","offset":12}`,
		`{"is_final":true,"exit_code":3,"hint":"say \"data\":\"x\"","duration_ms":5}`,
		`{"offset":1,"data":"late","stream":"stdout"}`,
	} {
		var want bothy.ExecEvent
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		got, err := execEvent([]byte(text))
		if err != nil || got != want {
			t.Errorf("%s was read as %+v (%v), not %+v", text, got, err, want)
		}
	}
	for _, text := range []string{`{"data":"`, `{"data":"x"`, `[]`, ``} {
		if got, err := execEvent([]byte(text)); err == nil {
			t.Errorf("%q was read as %+v", text, got)
		}
	}
}
