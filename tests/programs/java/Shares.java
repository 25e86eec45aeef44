import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Runs some methods of different shares for so many seconds: recursion, loops that HotSpot inlines, objects, collections, strings, lambdas.
 *
 * <p>{@code java Shares SECONDS}
 */
public class Shares {
    static int fib(int n) {
        return n < 2 ? n : fib(n - 1) + fib(n - 2);
    }

    static boolean isPrime(int n) {
        for (int d = 2; d * d <= n; d++) {
            if (n % d == 0) {
                return false;
            }
        }
        return true;
    }

    static int countPrimes(int upTo) {
        int count = 0;
        for (int n = 2; n < upTo; n++) {
            if (isPrime(n)) {
                count++;
            }
        }
        return count;
    }

    static class Tree {
        final int value;
        Tree left;
        Tree right;

        Tree(int value) {
            this.value = value;
        }

        void insert(int other) {
            if (other < value) {
                if (left == null) {
                    left = new Tree(other);
                } else {
                    left.insert(other);
                }
            } else if (right == null) {
                right = new Tree(other);
            } else {
                right.insert(other);
            }
        }

        int sum() {
            return value + (left == null ? 0 : left.sum()) + (right == null ? 0 : right.sum());
        }
    }

    static int trees(int n) {
        int state = 7;
        Tree tree = new Tree(500);
        for (int i = 0; i < n; i++) {
            state = (state * 1103515245 + 12345) & 0x7fffffff;
            tree.insert(state >> 8 & 1023);
        }
        int sum = 0;
        for (int i = 0; i < 20; i++) {
            sum += tree.sum();
        }
        return sum;
    }

    static int words(int n) {
        Map<String, Integer> counts = new HashMap<>();
        for (int i = 0; i < n; i++) {
            counts.merge("word" + i % 97, 1, Integer::sum);
        }
        return counts.size();
    }

    static double matrix(int n) {
        double[] a = new double[n * n];
        double[] c = new double[n * n];
        for (int i = 0; i < n; i++) {
            for (int j = 0; j < n; j++) {
                double sum = 1;
                for (int k = 0; k < n; k++) {
                    sum += a[i * n + k] * a[k * n + j];
                }
                c[i * n + j] = sum;
            }
        }
        return c[n];
    }

    static int sorted(int n) {
        List<Integer> list = new ArrayList<>();
        for (int i = 0; i < n; i++) {
            list.add(i * 7919 % n);
        }
        list.sort((left, right) -> right - left);
        return list.get(0);
    }

    static int parse(String text) {
        int sum = 0;
        int at = 0;
        while (at < text.length()) {
            int number = 0;
            while (at < text.length() && text.charAt(at) != '+') {
                number = number * 10 + text.charAt(at++) - '0';
            }
            sum += number;
            at++;
        }
        return sum;
    }

    public static void main(String[] arguments) {
        long end = System.nanoTime() + (long) (Double.parseDouble(arguments[0]) * 1e9);
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < 500; i++) {
            text.append(i).append('+');
        }
        String numbers = text.toString();
        double sum = 0;
        // Each of them runs for some 100 ms. async-profiler's clock ticks each 4 ms.
        while (System.nanoTime() < end) {
            for (int i = 0; i < 3000; i++) {
                sum += fib(20);
            }
            for (int i = 0; i < 1000; i++) {
                sum += countPrimes(6000);
            }
            for (int i = 0; i < 500; i++) {
                sum += trees(2000);
            }
            for (int i = 0; i < 500; i++) {
                sum += words(6000);
            }
            for (int i = 0; i < 1000; i++) {
                sum += matrix(50);
            }
            for (int i = 0; i < 500; i++) {
                sum += sorted(5000);
            }
            for (int i = 0; i < 50000; i++) {
                sum += parse(numbers);
            }
        }
        System.out.println(sum);
    }
}
