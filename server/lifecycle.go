package server

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"github.com/bothy-dev/bothy/lifecycle/warm"

	"github.com/bothy-dev/bothy/lifecycle/engines"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/gvisor"
	"github.com/bothy-dev/bothy/engine/microvm"
	"github.com/bothy-dev/bothy/gateway"
	guestclient "github.com/bothy-dev/bothy/guest/client"
	"github.com/bothy-dev/bothy/internal/embedded"
	"github.com/bothy-dev/bothy/lifecycle"
	"github.com/bothy-dev/bothy/snapshot"
)

func (s *Server) openLifecycle(ctx context.Context, b embedded.Paths) error {
	opened := map[string]bothy.Engine{gvisor.Name: s.engine}
	s.undo.Add(s.closeMicrovm)
	if s.config.Engine.Default == microvm.Name {
		e, err := s.openMicrovm(ctx, b)
		if err != nil {
			return err
		}
		opened[microvm.Name] = e
	}
	cas, err := s.config.TrustedCAs()
	if err != nil {
		return err
	}
	trusted, err := trustedKeys(s.config.Snapshots.TrustedKeys)
	if err != nil {
		return err
	}
	gateways, err := s.gatewayOptions(cas)
	if err != nil {
		return err
	}
	journals, err := gateway.OpenJournals(filepath.Join(s.config.Home, "network"))
	if err != nil {
		return err
	}
	s.lifecycle = lifecycle.New(withMetering(lifecycle.Options{
		Store:     s.store,
		Plans:     s.projects,
		Meter:     s.meter,
		Observe:   s.metrics.Event,
		Templates: s.templates, TemplateMaker: s.templates, TemplatesUsed: s.templates.UsedBy,
		Blobs:   s.blobs,
		Engines: opened,
		Openers: map[string]engines.Opener{
			microvm.Name: func(ctx context.Context) (bothy.Engine, error) { return s.openMicrovm(ctx, b) },
		},
		Builds:     s.builds,
		Engine:     s.config.Engine.Default,
		Auto:       autoPolicies[s.config.Engine.Auto],
		GuestImage: b.GuestImage,
		NewGateway: func(id string, c bothy.NetDevice) (bothy.Gateway, error) {
			o := gateways
			o.Log = s.log.With("sandbox", id)
			o.SecretSeed = s.vault.Derive("gateway of " + id)
			o.Journal = journals.Open(id)
			if s.membership.Shared() {
				o.Await = s.membership.Await
			}
			return gateway.New(c, o)
		},
		CheckNetwork: func(n bothy.Network) error { return gateway.CheckPolicy(n, nil) },
		CheckSecrets: gateway.CheckSecrets,
		CheckReach: func(n bothy.Network, host string, port uint16) error {
			return gateway.CheckReach(n, nil, host, port)
		},
		NetworkLogs: journals,
		NewGuest: func(dial func(context.Context) (net.Conn, error), key string) bothy.Guest {
			return guestclient.Guest{Client: guestclient.New(dial, key), Log: s.log}
		},
		Vault:    s.vault,
		CABundle: cas,
		Pool: warm.Options{
			Golden: s.golden, GoldenMax: s.config.Pool.GoldenMax, Spares: s.config.Pool.Spares,
			Ready: s.config.Pool.Ready, ReadyMax: s.config.Pool.ReadyMax, Templates: s.config.Pool.Templates,
			MinFreeMemoryMB: s.config.Pool.MinFreeMemoryMB,
		},
		Cluster:      s.membership,
		MaxSandboxes: s.config.Sandboxes.Max,
		Register:     RegisterFolder(s.config),
		Doubtful:     s.doubtful,
		DiskFull:     func() bool { return freeBytes(s.config.Home) < fullBelow },
		Retention: lifecycle.Retention{
			PerSandbox:   s.config.Snapshots.KeepPerSandbox,
			For:          time.Duration(s.config.Snapshots.KeepHours) * time.Hour,
			ProjectBytes: s.config.Snapshots.ProjectQuotaMB << 20,
			MinFreeDisk:  s.config.Snapshots.MinFreeDiskMB << 20,
		},
		ArchiveKey:      snapshot.NewKey(s.vault.Derive("snapshot archives")),
		TrustedKeys:     trusted,
		MinFreeMemoryMB: s.config.Sandboxes.MinFreeMemoryMB,
		AdmissionWait:   time.Duration(s.config.Sandboxes.WaitSeconds) * time.Second,
		StartsAtOnce:    s.config.Sandboxes.StartsAtOnce,
		Log:             s.log,
	}))
	background, stop := context.WithCancel(context.Background())
	s.undo.Add(func() { s.lifecycle.Close() })
	s.undo.Add(stop)
	keep := time.Duration(s.config.Sandboxes.KeepEndedHours) * time.Hour
	go s.lifecycle.Janitor(background, time.Hour, keep)
	go s.lifecycle.RunHistory(background)
	return nil
}

// trustedKeys parses snapshots.trusted_keys: the keys of other servers.
func trustedKeys(texts []string) (keys []snapshot.PublicKey, err error) {
	for _, text := range texts {
		k, err := snapshot.ParsePublicKey(text)
		if err != nil {
			return nil, fmt.Errorf("snapshots.trusted_keys: %w", err)
		}
		keys = append(keys, k)
	}
	return keys, nil
}

func (s *Server) gatewayOptions(cas string) (gateway.Options, error) {
	o := gateway.Options{Allow: s.config.Network.Allow, Forbid: s.config.Network.Forbid, GuestMAC: bothy.GuestMAC[:]}
	if cas != "" {
		o.RootCAs = x509.NewCertPool()
		if !o.RootCAs.AppendCertsFromPEM([]byte(cas)) {
			return o, errors.New("network.ca_bundle contains no valid certificate")
		}
	}
	return o, nil
}
