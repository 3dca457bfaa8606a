package vectors

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"testing"
)

// programPlayer is a program that uses an SDK.
type programPlayer struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Reader
}

// program returns what starts a player, in the environment of a user.
func program(url, key, name string, args ...string) func(t *testing.T) player {
	return func(t *testing.T) player {
		cmd := exec.Command(name, args...)
		cmd.Env = environment(t, url, key)
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			in.Close()
			if err := cmd.Wait(); err != nil {
				t.Errorf("the player: %v", err)
			}
		})
		return &programPlayer{t, in, bufio.NewReader(out)}
	}
}

func (p *programPlayer) play(step object, heard func(string)) (object, *failure) {
	line, err := json.Marshal(step)
	if err == nil {
		_, err = p.in.Write(append(line, '\n'))
	}
	for err == nil {
		var answer struct {
			OK    object
			Error *failure
			Text  *string
		}
		if line, err = p.out.ReadBytes('\n'); err != nil {
			break
		}
		if err = json.Unmarshal(line, &answer); err != nil {
			break
		}
		if answer.Text == nil {
			return answer.OK, answer.Error
		}
		heard(*answer.Text)
	}
	p.t.Fatalf("the player does not answer: %v", err)
	return nil, nil
}
