package main

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// Two clones have the same times, but for what was changed in one of them.
func TestTimesFollowFromContent(t *testing.T) {
	times := func(change bool) (file, other, dir time.Time) {
		t.Chdir(t.TempDir())
		for _, words := range [][]string{
			{"git", "init", "--quiet"},
			{"mkdir", "dir"},
			{"sh", "-c", "echo content >dir/file; echo other >dir/other"},
			{"git", "add", "dir"},
			{"git", "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "--quiet", "-m", "one"},
		} {
			if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %v\n%s", words, err, out)
			}
		}
		if change {
			if err := os.WriteFile("dir/file", []byte("changed\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := settle(); err != nil {
			t.Fatal(err)
		}
		at := func(path string) time.Time {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			return info.ModTime()
		}
		return at("dir/file"), at("dir/other"), at("dir")
	}
	file, other, dir := times(false)
	if f, o, d := times(false); !f.Equal(file) || !o.Equal(other) || !d.Equal(dir) {
		t.Errorf("another clone has %v %v %v, not %v %v %v", f, o, d, file, other, dir)
	}
	if file.Equal(other) {
		t.Error("files with different contents have one time")
	}
	if f, o, _ := times(true); time.Since(f) > time.Minute || !o.Equal(other) {
		t.Errorf("a changed file has the time %v, and the other %v, not %v", f, o, other)
	}
}
