package e2b

import (
	"encoding/json"
	"testing"

	"github.com/bothy-dev/bothy"
)

func TestResults(t *testing.T) {
	for _, c := range []struct {
		out  bothy.CodeOutput
		want string
	}{
		{bothy.CodeOutput{"text/plain": `'bar'`}, `{"is_main_result":true,"text":"bar","type":"result"}`},
		{bothy.CodeOutput{"text/plain": `"it's"`}, `{"is_main_result":true,"text":"it's","type":"result"}`},
		{bothy.CodeOutput{"text/plain": `['bar']`}, `{"is_main_result":true,"text":"['bar']","type":"result"}`},
		{bothy.CodeOutput{"text/plain": `'`}, `{"is_main_result":true,"text":"'","type":"result"}`},
		// A whole number stays what it was for the client's types.
		{bothy.CodeOutput{mimeChart: `{"x_ticks": [1.0, 2]}`}, `{"chart":{"x_ticks":[1.0,2]},"is_main_result":true,"type":"result"}`},
		{bothy.CodeOutput{"application/json": `{`}, `{"is_main_result":true,"type":"result"}`},
	} {
		got, err := json.Marshal(resultOf(c.out, true))
		if err != nil || string(got) != c.want {
			t.Errorf("%v: %s, %v; want %s", c.out, got, err, c.want)
		}
	}
}
