package cli

import "testing"

// TestFlagsOfAnEarlierRun checks that flags are refused that cannot apply to the sandbox of an earlier run.
func TestFlagsOfAnEarlierRun(t *testing.T) {
	for flag, value := range map[string]string{"checkpoint": "60s", "on-host-loss": "resume", "host-label": "zone=a", "memory": "1024"} {
		cmd := newAgentRun(&app{})
		if err := cmd.Flags().Set(flag, value); err != nil {
			t.Fatal(err)
		}
		if err := (&agentRunFlags{task: "x", resume: "sbx1"}).check(cmd); err == nil {
			t.Errorf("--%s is ignored", flag)
		}
	}
}
