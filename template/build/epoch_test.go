package build

import (
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// With a time that nothing is younger than, a build on another day makes the same image.
func TestTheSameImageOnAnotherDay(t *testing.T) {
	w := newWorld(t)
	context := w.upload("f", "x")
	digests := func(args map[string]string) (first, second string) {
		req := bothy.BuildRequest{
			Dockerfile: "FROM base\nWORKDIR /made/here\nCOPY f /copied/\nRUN write /made/out $SOURCE_DATE_EPOCH\nVOLUME /data", ContextID: context, Args: args,
		}
		one := w.build(req)
		w.later += 50 * time.Hour
		req.NoCache = true
		two := w.build(req)
		if one.Error+two.Error != "" {
			t.Fatal(one.Error, two.Error)
		}
		return one.template.Digest, two.template.Digest
	}
	first, second := digests(map[string]string{epochArg: "1700000000"})
	if first != second {
		t.Error("a build on another day makes another image")
	}
	r := w.build(bothy.BuildRequest{Dockerfile: "FROM base\nRUN write /out $SOURCE_DATE_EPOCH", Args: map[string]string{epochArg: "1700000000"}})
	if n, err := r.files.Get("out"); err != nil || r.text("out") != "1700000000" || n.Time.Unix() != 1700000000 {
		t.Errorf("the command has made %q, %+v, %v", r.text("out"), n, err)
	}
	if n, err := r.files.Get("old"); err != nil || n.Time.Unix() >= 1700000000 {
		t.Errorf("what was older is %+v, %v", n, err)
	}
	if later, _ := digests(map[string]string{epochArg: "1700000001"}); later == first {
		t.Error("another time makes the same image")
	}
	if first, second := digests(nil); first == second {
		t.Error("without the argument the days do not differ")
	}
	for _, bad := range []string{"", "today", "-1", "1.5"} {
		_, err := w.StartBuild(w.me(), bothy.BuildRequest{Name: "made", Dockerfile: "FROM base", Args: map[string]string{epochArg: bad}})
		if bothy.ErrorCode(err) != bothy.CodeInvalid || !strings.Contains(err.Error(), epochArg) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
