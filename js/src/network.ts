/** What a sandbox may reach: nothing, what is allowed, or everything that is not forbidden. */
export type NetworkMode = "off" | "restricted" | "open";

/** Which destinations a sandbox may reach. */
export interface NetworkPolicy {
  /** Default `restricted`. */
  mode?: NetworkMode;
  /** Names of allow-lists that the server knows, such as `pypi`, `npm` or `github`. */
  presets?: string[];
  /** Host names; a leading `*.` stands for any number of labels. */
  allowDomains?: string[];
  /** Address ranges, such as `192.0.2.0/24`. */
  allowCidrs?: string[];
  /** Ports. */
  allowPorts?: number[];
  /** Address ranges that are closed in mode `open`, but for what the lists above allow. */
  denyCidrs?: string[];
}

/** A network policy: a mode (`"restricted"` means all the presets), or an object. */
export type Network = NetworkMode | NetworkPolicy;

/** One line of a sandbox's network log: what it tried to reach, and the decision. */
export interface NetworkDecision {
  time: Date;
  /** `tcp`, `udp`, `dns`, `icmp`, `tls`, `http` or `quic`. */
  protocol: string;
  /** The requested host name, if known. */
  name?: string;
  address?: string;
  port?: number;
  allowed: boolean;
  /** The rule that allowed it, such as `preset:pypi`. */
  rule?: string;
  /** Why it was refused. */
  reason?: string;
  /** Payload that the sandbox sent. */
  bytesOut: number;
  /** Payload that the sandbox received. */
  bytesIn: number;
  /** True on the line that reports the end of a connection. */
  closed?: boolean;
  /** How many identical decisions were folded into this line. */
  repeated?: number;
}
