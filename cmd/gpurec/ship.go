//go:build linux

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gpurec/gpurec/agent"
	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/ship"
)

// defaultShipAddress is the port that OpenTelemetry has for exporters to Prometheus.
const defaultShipAddress = "127.0.0.1:9464"

func newShipCommand() *cobra.Command {
	var socket, listen string
	cmd := &cobra.Command{
		Use:   "ship",
		Short: "Serve the numbers of the running agent to Prometheus",
		Long: `ship serves the numbers of the running agent at http://` + defaultShipAddress + `/metrics, for
Prometheus and programs that read its formats. The numbers are about GPUs, processes, errors,
Xids, triggers and the agent itself. docs/metrics.md lists all of them.

ship needs access to the agent's socket, and no privileges. If no agent answers,
gpurec_agent_up is 0; ship asks again with the next scrape. Anyone who can connect to
--listen can read the numbers.`,
		Example: `  gpurec ship                                      # until SIGTERM
  gpurec ship --listen :9464                       # for other machines
  gpurec ship --socket /data/gpurec/agent.sock
  curl http://` + defaultShipAddress + `/metrics`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runShip(cmd.Context(), socket, listen) },
	}
	addSocketFlag(cmd, &socket)
	cmd.Flags().StringVar(&listen, "listen", defaultShipAddress, "serve at `ADDRESS`")
	return cmd
}

// runShip serves the numbers of an agent until a signal ends it.
func runShip(ctx context.Context, socket, address string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	handler, err := ship.Handler(ship.NewCollector(
		func(ctx context.Context) (agent.Metrics, error) { return agent.ReadMetrics(ctx, socket) },
		catalog.ResultName,
		func(err error) { message.Warningf("%v", err) },
	))
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return message.WithHint(fmt.Errorf("--listen: %w", err), "gpurec ship --listen 127.0.0.1:0")
	}
	message.Notef("serving http://%s/metrics", listener.Addr())
	return ship.Serve(ctx, listener, handler)
}
