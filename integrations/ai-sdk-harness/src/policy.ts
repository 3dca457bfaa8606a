import { HarnessCapabilityUnsupportedError } from "@ai-sdk/harness";
import type { HarnessV1NetworkPolicy } from "@ai-sdk/harness";
import type { Network, NetworkPolicy } from "bothy";

/**
 * Says a policy in Bothy's words. The ports that the sandbox was made with stay.
 *
 * @throws HarnessCapabilityUnsupportedError What Bothy cannot keep.
 */
export function policyOf(policy: HarnessV1NetworkPolicy, made?: Network): Network {
  if (policy.mode === "deny-all") return "off";
  const allowPorts = typeof made === "object" ? made.allowPorts : undefined;
  const ports = allowPorts && { allowPorts };
  if (policy.mode === "allow-all") return { mode: "open", ...ports };
  const { allowedHosts = [], allowedCIDRs = [], deniedCIDRs = [] } = policy;
  if (allowedHosts.includes("*")) throw unsupported('the host "*" is not a list of hosts. Take the mode allow-all, or name the hosts.');
  if (deniedCIDRs.length === 0) return restricted(allowedHosts, allowedCIDRs, ports);
  if (allowedHosts.length > 0) {
    throw unsupported("addresses cannot be denied to hosts that are allowed by name. Leave deniedCIDRs out: private and link-local networks, with the metadata services of clouds, are closed in any case.");
  }
  if (allowedCIDRs.includes("0.0.0.0/0")) return { mode: "open", denyCidrs: [...deniedCIDRs], ...ports };
  const left = deniedCIDRs.map(rangeOf).reduce((ranges, denied) => ranges.flatMap((range) => without(range, denied)), allowedCIDRs.map(rangeOf));
  return restricted([], left.map(textOf), ports);
}

function restricted(hosts: readonly string[], cidrs: readonly string[], ports?: Pick<NetworkPolicy, "allowPorts">): NetworkPolicy {
  return { mode: "restricted", ...(hosts.length > 0 && { allowDomains: [...hosts] }), ...(cidrs.length > 0 && { allowCidrs: [...cidrs] }), ...ports };
}

/** A range of IPv4 addresses: its first, and how many leading bits are fixed. */
interface Range {
  first: number;
  bits: number;
}

function rangeOf(text: string): Range {
  const [address = "", length = "32"] = text.split("/");
  const parts = address.split(".").map(Number);
  const bits = Number(length);
  if (parts.length !== 4 || !parts.every((part) => Number.isInteger(part) && part >= 0 && part < 256) || !(Number.isInteger(bits) && bits >= 0 && bits <= 32)) {
    throw unsupported(`${text} is not a range of IPv4 addresses, such as 192.0.2.0/24. There is no IPv6 in a sandbox.`);
  }
  const number = parts.reduce((sum, part) => sum * 256 + part, 0);
  return { first: number - (number % size(bits)), bits };
}

function textOf({ first, bits }: Range): string {
  return `${[24, 16, 8, 0].map((shift) => Math.floor(first / 2 ** shift) % 256).join(".")}/${bits}`;
}

function size(bits: number): number {
  return 2 ** (32 - bits);
}

/** What is left of a range without another, in as few ranges as that takes. */
function without(range: Range, denied: Range): Range[] {
  const inside = (inner: Range, outer: Range): boolean => inner.bits >= outer.bits && inner.first >= outer.first && inner.first < outer.first + size(outer.bits);
  if (inside(range, denied)) return [];
  if (!inside(denied, range)) return [range];
  const bits = range.bits + 1;
  return [{ first: range.first, bits }, { first: range.first + size(bits), bits }].flatMap((half) => without(half, denied));
}

export function unsupported(message: string): HarnessCapabilityUnsupportedError {
  return new HarnessCapabilityUnsupportedError({ message });
}
