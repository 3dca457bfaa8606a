package layers

import (
	"fmt"
	"slices"
	"strings"
)

// Picture draws the arrows between rooms as a Mermaid flowchart. Rooms that assemble the parts
// import nearly all of them, so their arrows lead to whole areas.
func Picture(arrows map[Arrow]bool) string {
	var b strings.Builder
	b.WriteString("flowchart TD\n")
	for _, a := range areas {
		fmt.Fprintf(&b, "  subgraph %s [\"%s\"]\n", a.id, a.title)
		for _, room := range a.rooms {
			fmt.Fprintf(&b, "    %s[\"%s\"]\n", node(room), room)
		}
		b.WriteString("  end\n")
	}
	drawn := map[string]bool{}
	for a := range arrows {
		from, to := a.From, node(a.To)
		if area := areaOf(a.To); gathers(from) && area != nil && area != areaOf(from) {
			to = area.id
		}
		drawn[fmt.Sprintf("  %s --> %s\n", node(from), to)] = true
	}
	lines := make([]string, 0, len(drawn))
	for line := range drawn {
		lines = append(lines, line)
	}
	slices.Sort(lines)
	b.WriteString(strings.Join(lines, ""))
	return b.String()
}

// gathers reports whether a room introduces the others to each other.
func gathers(room string) bool { return room == "cli" || room == "server" }

// node is a room's name in the picture, distinct from the names of areas.
func node(room string) string { return "r_" + strings.ReplaceAll(room, "/", "_") }
