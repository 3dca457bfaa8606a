package driver

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"gvisor.dev/gvisor/pkg/sentry/control"
	"gvisor.dev/gvisor/pkg/state/statefile"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/specutils"
)

// decoded is an argument of ours as the sentry reads it, which must know each field.
func decoded[T any](t *testing.T, ours any) T {
	t.Helper()
	text, err := json.Marshal(ours)
	if err != nil {
		t.Fatal(err)
	}
	var theirs T
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&theirs); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return theirs
}

func TestCallsAreThoseOfTheLibrary(t *testing.T) {
	for ours, theirs := range map[string]string{
		callStart: boot.ContMgrRootContainerStart, callRestore: boot.ContMgrRestore, callCheckpoint: boot.ContMgrCheckpoint,
		callPause: boot.ContMgrPause, callResume: boot.ContMgrResume, callNetwork: boot.ContMgrSetNetworkArgs,
		callTar: boot.FsTarRootfsUpperLayer, cpuFeatures: specutils.AnnotationCPUFeatures,
	} {
		if ours != theirs {
			t.Errorf("%s is %s in the library", ours, theirs)
		}
	}
	two := specutils.GoferMountConfFlags{
		{Lower: specutils.Erofs, Upper: specutils.AnonOverlay, Size: "5m;nr_inodes=3"},
		{Lower: specutils.Erofs, Upper: specutils.NoOverlay},
	}
	if got, want := layers("5m;nr_inodes=3"), two.String(); got != want {
		t.Errorf("the layers are %s, and %s in the library", got, want)
	}
}

func TestArgumentsAreThoseOfTheLibrary(t *testing.T) {
	same := func(got, want any) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("the sentry reads %+v, not %+v", got, want)
		}
	}
	same(decoded[boot.RestoreOpts](t, restoreArgs{HavePagesFile: true, Background: true}), boot.RestoreOpts{HavePagesFile: true, Background: true})
	plain := statefile.CompressionLevelNone.ToMetadata()
	same(decoded[control.SaveOpts](t, checkpointArgs{Metadata: plain, SkipZeroPages: true, HavePagesFile: true, Resume: true}),
		control.SaveOpts{Metadata: plain, AppMFExcludeCommittedZeroPages: true, HavePagesFile: true, Resume: true})
	same(decoded[control.TarRootfsUpperLayerOpts](t, tarArgs{ContainerID: "a"}), control.TarRootfsUpperLayerOpts{ContainerID: "a"})

	args, err := network(os.Stdin)
	if err != nil {
		t.Fatal(err)
	}
	args.IsRestore = true
	// decoded has checked that each field has its name. What an empty one means is not ours to say.
	got := decoded[boot.CreateLinksAndRoutesArgs](t, args)
	link, ours := got.FDBasedLinks[0], args.FDBasedLinks[0]
	if !got.IsRestore || len(got.FDBasedLinks) != 1 || link.NumChannels != 1 || link.MTU != ours.MTU || link.GSOMaxSize != ours.GSOMaxSize || link.QDisc != ours.QDisc ||
		link.ProcessorsPerChannel != ours.ProcessorsPerChannel || !link.TXChecksumOffload || !link.RXChecksumOffload || len(link.Routes) != 2 || len(link.Neighbors) != 1 ||
		!bytes.Equal(link.LinkAddress, ours.LinkAddress) || !bytes.Equal(link.Neighbors[0].HardwareAddr, ours.Neighbors[0].HardwareAddr) {
		t.Errorf("the sentry reads %+v", got)
	}
	var theirs boot.LoopbackLink
	text, err := json.Marshal(boot.DefaultLoopbackLink)
	if err == nil {
		err = json.Unmarshal(text, &theirs)
	}
	if err != nil {
		t.Fatal(err)
	}
	same(got.LoopbackLinks, []boot.LoopbackLink{theirs})
}
