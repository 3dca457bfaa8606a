# A host of a cluster on every client that has the meta bothy = "host". The program is installed
# there (make install), and /var/lib/bothy/secrets.key is that of the other hosts: bothy host join
# puts it there. The job is a system job: each client has one host, whose name is the client's.
#
#   nomad var put nomad/jobs/bothy store=postgres://bothy@db.example.org/bothy?sslmode=verify-full password=…
#   nomad job run bothy.nomad.hcl

variable "program" {
  type    = string
  default = "/usr/local/bin/bothy"
}

job "bothy" {
  type = "system"

  constraint {
    attribute = "${meta.bothy}"
    value     = "host"
  }

  # One host at a time.
  update {
    max_parallel     = 1
    min_healthy_time = "10s"
    healthy_deadline = "3m"
  }

  group "host" {
    network {
      mode = "host"
      port "api" {
        static = 7700
      }
      port "hosts" {
        static = 7710
      }
      port "metrics" {
        static = 7701
      }
    }

    # One that the others gave up joins again.
    restart {
      attempts = 10
      interval = "5m"
      delay    = "2s"
      mode     = "delay"
    }

    service {
      name     = "bothy"
      port     = "api"
      provider = "nomad"

      check {
        type     = "http"
        path     = "/healthz"
        interval = "5s"
        timeout  = "3s"
      }
    }

    service {
      name     = "bothy-metrics"
      port     = "metrics"
      provider = "nomad"
    }

    task "bothy" {
      # It makes cgroups, mounts and namespaces: root, and no isolation of its own.
      driver = "raw_exec"
      user   = "root"

      config {
        command = var.program
        args    = ["serve", "--config", "${NOMAD_TASK_DIR}/bothy.yaml", "--bootstrap-credentials", "/root/.config/bothy/credentials.json"]
      }

      template {
        destination = "local/bothy.yaml"
        data        = <<-EOT
          listen: {{ env "NOMAD_ADDR_api" }}
          insecure: true # or tls, with the files of a certificate
          metrics_listen: {{ env "NOMAD_ADDR_metrics" }}
          cluster:
            name: {{ env "node.unique.name" | toLower | replaceAll "." "-" }}
            listen: {{ env "NOMAD_ADDR_hosts" }}
        EOT
      }

      template {
        destination = "secrets/database.env"
        env         = true
        data        = <<-EOT
          {{ with nomadVar "nomad/jobs/bothy" }}
          BOTHY_STORE={{ .store }}
          PGPASSWORD={{ .password }}
          {{ end }}
        EOT
      }

      # More than shutdown_seconds of the settings.
      kill_timeout = "60s"

      resources {
        cpu    = 1000
        memory = 1024
      }
    }
  }
}
