package layers

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
)

// abolished maps names that the code no longer uses to their replacements, as
// docs/architecture.md explains under "The life of an instance". Each stood for one of several
// things, or for a thing that has another name elsewhere.
var abolished = map[string]string{
	"bringUp": "start", "bringUpNew": "startNew", "bringUpFrom": "startFrom", "bringBack": "resumeFrom", "wakeUp": "resumeFrom",
	"wakeAs": "restore", "wakeAhead": "restoreAhead", "awaken": "ensureRunning", "startAny": "restoreOrBoot", "makeReady": "prepare",
	"handOut": "assign", "vessel": "preparedSentry", "makeVessel": "prepareSentry", "birth": "bootAffinity", "births": "cpuSlots",
	"spring": "spliceReader", "pour": "splice", "pourer": "splicer", "lastWord": "hijackedResponse", "readopt": "reattach", "adoptAs": "Identify", "AdoptAs": "Identify", "fallAsleep": "finishPause",
	"turnBack": "rollTo", "momentOf": "captureNow", "forgo": "discard", "liveByID": "instance", "dropSleep": "dropPauseSnapshot",
	"stillness": "autofreeze", "fallIdle": "CloseIfIdle", "stayUp": "Reopen", "letIn": "admit", "ticket": "waiter",
	"shape": "class", "shapeOf": "classOf", "laps": "Steps", "byHand": "Response",
	"Sexton": "GiveUpDead", "bury": "giveUp", "BuryHosts": "GiveUpHosts", "Burial": "HostGivenUp", "Buried": "GaveUp", "buried": "gaveUp",
	"hushAll": "applySuspension", "Hush": "ApplySuspension", "Hushed": "IsSuspended", "StandStill": "MarkFrozen", "spoil": "injectFaults",
	"Spoil": "InjectFaults", "spoilt": "damaged", "telling": "notifyOnKill", "napping": "minNanosleep", "listening": "notifyOnListen",
	"lastWords": "panicOutput", "furnish": "mountSpecial", "dress": "applyMetadata", "calmDown": "resumeGC",
}

// abolishedIn are the folders in which they are abolished: elsewhere some of them are the right
// words for something else.
var abolishedIn = []string{"api", "blob", "cluster", "engine", "gateway", "guest", "lifecycle", "metering", "server", "store"}

// Words returns the abolished names that a file declares.
func Words(name string, src any) (wrong []string, err error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	declared := func(ids ...*ast.Ident) {
		for _, id := range ids {
			if instead, ok := abolished[id.Name]; ok {
				wrong = append(wrong, fmt.Sprintf("%v: the name %s is abolished; say %s", fset.Position(id.Pos()), id.Name, instead))
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.FuncDecl:
			declared(x.Name)
		case *ast.TypeSpec:
			declared(x.Name)
		case *ast.Field:
			declared(x.Names...)
		case *ast.ValueSpec:
			declared(x.Names...)
		}
		return true
	})
	slices.Sort(wrong)
	return wrong, nil
}
