package metering_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

func TestProjectBudget(t *testing.T) {
	w := newWorld(t)
	if err := w.SetProjectBudget(t.Context(), "p", 20); err != nil {
		t.Fatal(err)
	}
	w.start("a")
	w.start("other", func(sb *store.Sandbox) { sb.ProjectID = "q" })
	w.passing(15 * time.Second)
	if got := w.events(); len(got) != 0 {
		t.Fatalf("at 75 %%: %v", got)
	}
	w.passing(time.Second)
	if got := w.events(); !slices.Equal(got, []string{bothy.EventBudgetWarning}) {
		t.Fatalf("at 80 %%: %v", got)
	}
	if err := w.Allow(w.sandboxes["a"]); err != nil {
		t.Errorf("at 80 %%: %v", err)
	}
	w.passing(4 * time.Second)
	if got := w.events(); !slices.Equal(got, []string{bothy.EventBudgetWarning, bothy.EventBudgetExceeded}) {
		t.Fatalf("at 100 %%: %v", got)
	}
	if paused := <-w.paused; paused != "p/" {
		t.Errorf("paused %q", paused)
	}
	err := w.Allow(w.sandboxes["a"])
	if bothy.ErrorCode(err) != bothy.CodeBudget {
		t.Fatalf("one more is allowed: %v", err)
	}
	for _, want := range []string{"20.00 EUR", "2026-04-01"} {
		if !strings.Contains(bothy.AsError(err).Detail, want) {
			t.Errorf("%q does not say %q", bothy.AsError(err).Detail, want)
		}
	}
	if err := w.Allow(w.sandboxes["other"]); err != nil {
		t.Errorf("another project: %v", err)
	}
	w.stop("a")
	w.passing(5 * time.Second)
	if got := w.events(); len(got) != 2 {
		t.Errorf("it is said again: %v", got)
	}
	w.crash()
	if bothy.ErrorCode(w.Allow(w.sandboxes["a"])) != bothy.CodeBudget {
		t.Errorf("another server allows it before it looks")
	}
	w.tick()
	if got := w.events(); len(got) != 2 {
		t.Errorf("another server says it again: %v", got)
	}
	if bothy.ErrorCode(w.Allow(w.sandboxes["a"])) != bothy.CodeBudget {
		t.Errorf("another server allows it")
	}
	if err := w.SetProjectBudget(t.Context(), "p", 50); err != nil {
		t.Fatal(err)
	}
	if err := w.Allow(w.sandboxes["a"]); err != nil {
		t.Errorf("after it was raised: %v", err)
	}
	if b := w.ProjectBudget("p"); b.Used != 20 || b.Limit != 50 {
		t.Errorf("got %+v", b)
	}
	if err := w.SetProjectBudget(t.Context(), "p", 0); err != nil || w.ProjectBudget("p") != nil {
		t.Errorf("after it was lifted: %+v, %v", w.ProjectBudget("p"), err)
	}
}

func TestBudgetRestartsEachMonth(t *testing.T) {
	w := newWorld(t)
	w.start("a")
	w.passing(30 * time.Second)
	if err := w.SetProjectBudget(t.Context(), "p", 20); err != nil {
		t.Fatal(err)
	}
	w.tick()
	if bothy.ErrorCode(w.Allow(w.sandboxes["a"])) != bothy.CodeBudget {
		t.Errorf("what was used before the budget was set does not count")
	}
	w.stop("a")
	w.clock.pass(31 * 24 * time.Hour)
	if err := w.Allow(w.sandboxes["a"]); err != nil {
		t.Errorf("in the next month: %v", err)
	}
	w.start("a")
	w.passing(20 * time.Second)
	if got := w.events(); !slices.Equal(got, []string{bothy.EventBudgetExceeded, bothy.EventBudgetExceeded}) &&
		!slices.Equal(got, []string{bothy.EventBudgetExceeded, bothy.EventBudgetWarning, bothy.EventBudgetExceeded}) {
		t.Errorf("got %v", got)
	}
}

func TestTreeBudget(t *testing.T) {
	w := newWorld(t)
	if err := w.SetTreeBudget(t.Context(), "root", "p", 30); err != nil {
		t.Fatal(err)
	}
	member := func(sb *store.Sandbox) { sb.BudgetRoot = "root" }
	w.start("root", member)
	w.passing(8 * time.Second)
	w.start("fork-1", member)
	w.start("fork-2", member)
	w.start("stranger")
	w.passing(5 * time.Second)
	if b := w.TreeBudget("root"); b.Used != 8+3*5 {
		t.Errorf("got %+v", b)
	}
	w.crash()
	for _, id := range []string{"root", "fork-1", "fork-2", "stranger"} {
		w.adopt(id)
	}
	w.passing(3 * time.Second)
	if got := w.events(); !slices.Equal(got, []string{bothy.EventBudgetWarning, bothy.EventBudgetExceeded}) {
		t.Errorf("got %v, with %+v", got, w.TreeBudget("root"))
	}
	if paused := <-w.paused; paused != "p/root" {
		t.Errorf("paused %q", paused)
	}
	if bothy.ErrorCode(w.Allow(w.sandboxes["fork-1"])) != bothy.CodeBudget {
		t.Errorf("another fork is allowed")
	}
	if err := w.Allow(w.sandboxes["stranger"]); err != nil {
		t.Errorf("a stranger: %v", err)
	}
}

func TestBudgetWithAFullDisk(t *testing.T) {
	w := newWorld(t)
	if err := w.SetProjectBudget(t.Context(), "p", 10); err != nil {
		t.Fatal(err)
	}
	w.disk.set(true, false)
	w.start("a")
	w.passing(10 * time.Second)
	if bothy.ErrorCode(w.Allow(w.sandboxes["a"])) != bothy.CodeBudget {
		t.Errorf("a full disk is a way around the budget: %+v", w.ProjectBudget("p"))
	}
	if err := w.SetProjectBudget(t.Context(), "p", 11); err != nil {
		t.Fatal(err)
	}
	if b := w.ProjectBudget("p"); b.Used != 10 {
		t.Errorf("what is not written yet is forgotten: %+v", b)
	}
}

func TestBadBudgets(t *testing.T) {
	w := newWorld(t)
	for _, amount := range []float64{-1, 1e13, nan()} {
		if err := w.SetProjectBudget(t.Context(), "p", amount); bothy.ErrorCode(err) != bothy.CodeInvalid {
			t.Errorf("%v: %v", amount, err)
		}
	}
	w.rates = bothy.Rates{Currency: "EUR"}
	w.crash()
	if err := w.SetProjectBudget(t.Context(), "p", 1); bothy.ErrorCode(err) != bothy.CodeInvalid {
		t.Errorf("where nothing costs anything: %v", err)
	}
}

func nan() float64 {
	var zero float64
	return zero / zero
}
